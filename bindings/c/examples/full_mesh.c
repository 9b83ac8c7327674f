/* Full mesh by cause (SMAPP section 4.1): a subflow from each local address, and again after a loss, later for worse causes. */
#include <manypath.h>
#include <stdlib.h>
#include <string.h>

/* Milliseconds before the first new attempt; what is not here the peer or the administrator ended for good. */
static const struct {
  const char *cause;
  int pause_ms;
} PAUSES[] = {{"reset_by_peer", 1000}, {"timed_out", 1000}, {"unreachable", 3000}, {"address_gone", 0}};

/* A path, which is a connection and an address of ours. */
typedef struct {
  int failures;
  bool waits; /* for its time, or for ever */
} path;

/* Opens what is missing. */
static void fill(mp_client *control, const mp_connection *shown, void *context) {
  (void)context;
  const mp_address *local;
  for (size_t i = 0; (local = mp_unused(shown, i)); i++) {
    const path *known = mp_note(control, shown->id, local->address, sizeof(path));
    mp_wanted wanted = {.local = local->address, .backup = local->backup};
    if (known && !known->waits) mp_heed(control, shown->id, mp_create(control, shown->id, &wanted));
  }
}

static void again(mp_client *control, void *known) {
  ((path *)known)->waits = false;
  mp_each(control, fill, NULL);
}

static void on_event(mp_client *control, const mp_event *event, void *context) {
  if (strcmp(event->event, "sub_closed") != 0) {
    mp_each(control, fill, context);
    return;
  }
  path *lost = mp_note(control, event->connection, event->local.address, sizeof(path));
  bool meant = event->transient == 0 && event->reset_reason >= 0;
  for (size_t i = 0; lost && i < sizeof PAUSES / sizeof *PAUSES; i++)
    if (strcmp(event->cause, PAUSES[i].cause) == 0 && !meant) {
      int pause_ms = PAUSES[i].pause_ms << lost->failures;
      mp_after(control, pause_ms + rand() % (pause_ms / 4 + 1), again, lost);
    }
  if (!lost) return;
  lost->waits = true;
  lost->failures += lost->failures < 5;
}

int main(int argc, char **argv) {
  const char *const events[] = {"established", "sub_closed", "new_local_addr", NULL};
  mp_client *control = mp_begin(argc > 1 ? argv[1] : NULL, events, 0, on_event, NULL);
  if (control) mp_each(control, fill, NULL);
  return mp_finish(control);
}
