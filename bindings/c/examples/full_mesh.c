/* Full mesh by cause (SMAPP section 4.1): a subflow from each local address, and again after a loss, later for worse causes. */
#include "example.h"

/* Milliseconds before the first new attempt; what is not here the peer or the administrator ended for good. */
static const char *const CAUSES[] = {"reset_by_peer", "timed_out", "unreachable", "address_gone"};
static const int PAUSES_MS[] = {1000, 1000, 3000, 0};

/* A path that was lost: it waits for its time, or was given up. */
typedef struct path {
  struct path *next;
  char name[80]; /* connection and address */
  int failures;
  bool waits;
} path;

static path *find(const char *connection, const char *address, bool add) {
  static path *paths;
  char name[80];
  snprintf(name, sizeof name, "%s %s", connection, address);
  path *one = paths;
  while (one && strcmp(one->name, name)) one = one->next;
  if (one || !add) return one;
  if (!(one = calloc(1, sizeof *one))) give_up("memory");
  memcpy(one->name, name, sizeof name);
  one->next = paths;
  return paths = one;
}

/* Opens what is missing. */
static void fill(mp_client *control, const mp_connection *shown, void *context) {
  (void)context;
  for (size_t i = 0; shown->may_join && i < shown->address_count; i++) {
    const mp_address *local = &shown->addresses[i];
    const path *lost = find(shown->id, local->address, false);
    mp_wanted wanted = {.local = local->address, .backup = local->backup};
    if (local->up && !(lost && lost->waits) && !uses(shown, local->address))
      check(control, shown->id, mp_create(control, shown->id, &wanted));
  }
}

static void again(mp_client *control, void *lost) {
  ((path *)lost)->waits = false;
  mp_each(control, fill, NULL);
}

static void on_event(mp_client *control, const mp_event *event, void *context) {
  bool is_lost = !strcmp(event->event, "sub_closed");
  path *lost = is_lost ? find(event->connection, event->local.address, true) : NULL;
  if (!lost) mp_each(control, fill, context);
  for (size_t i = 0; lost && i < 4; i++) {
    lost->waits = true;
    if (strcmp(event->cause, CAUSES[i]) || event->transient == 0) continue;
    int pause = PAUSES_MS[i] << (lost->failures < 6 ? lost->failures++ : 6);
    mp_after(control, (pause < 60000 ? pause : 60000) + rand() % 250, again, lost);
  }
}

int main(int argc, char **argv) {
  const char *const events[] = {"established", "sub_closed", "new_local_addr", NULL};
  mp_client *control = begin(argc, argv);
  mp_after(control, 0, again, find("", "", true));
  return steer(control, events, 0, on_event);
}
