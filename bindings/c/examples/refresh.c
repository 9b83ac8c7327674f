/* Refresh (SMAPP section 4.4): several subflows over a network that hashes flows; every 2.5 s the slowest is replaced. */
#include <manypath.h>

enum { SUBFLOWS = 5, EVERY_MS = 2500 };

/* What each subflow had acknowledged at the last look. */
typedef struct {
  size_t count;
  struct {
    int id;
    int64_t acked;
  } before[2 * SUBFLOWS];
} seen;

/* How much a subflow has done since; -1 for one that was not there, which has not had its chance. */
static int64_t done(const seen *last, const mp_subflow *subflow) {
  for (size_t i = 0; i < last->count; i++)
    if (last->before[i].id == subflow->id) return subflow->bytes_acked - last->before[i].acked;
  return -1;
}

/* Fills up, and replaces the slowest unless all do about alike. */
static void refresh(mp_client *control, const mp_connection *shown, seen *last) {
  for (size_t i = shown->subflow_count; i < SUBFLOWS; i++) mp_heed(control, shown->id, mp_create(control, shown->id, NULL));
  const mp_subflow *slowest = NULL;
  int64_t least = INT64_MAX, most = 0;
  for (size_t i = 0; i < shown->subflow_count; i++) {
    int64_t rate = shown->subflows[i].established ? done(last, &shown->subflows[i]) : -1;
    if (rate > most) most = rate;
    if (rate >= 0 && rate < least) slowest = &shown->subflows[i], least = rate;
  }
  if (slowest && least * 4 < most * 3 && mp_heed(control, shown->id, mp_create(control, shown->id, NULL)) >= 0)
    mp_heed(control, shown->id, mp_destroy(control, shown->id, slowest->id, false));
  last->count = shown->subflow_count < 2 * SUBFLOWS ? shown->subflow_count : 2 * SUBFLOWS;
  for (size_t i = 0; i < last->count; i++) {
    last->before[i].id = shown->subflows[i].id;
    last->before[i].acked = shown->subflows[i].bytes_acked;
  }
}

static void on_event(mp_client *control, const mp_event *event, void *context) {
  mp_connection *shown = event->sample ? NULL : mp_show(control, event->connection);
  const mp_connection *now = event->sample ? event->sample : shown;
  seen *last = mp_note(control, event->connection, NULL, sizeof(seen));
  (void)context;
  if (last && now && now->may_join) refresh(control, now, last);
  mp_connection_free(shown);
}

int main(int argc, char **argv) {
  const char *const events[] = {"established", "sample", NULL};
  return mp_finish(mp_begin(argc > 1 ? argv[1] : NULL, events, EVERY_MS, on_event, NULL));
}
