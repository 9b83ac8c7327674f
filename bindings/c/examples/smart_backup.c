/* Smart backup (SMAPP section 4.2): no second subflow before the time-out of the first passes a second; then move, and back. */
#include <manypath.h>
#include <string.h>

enum { THRESHOLD_US = 1000000, RETRY_MS = 10000, PROBATION_MS = 3000 };

/* A connection that has moved away from its primary address, and the subflow that tries it again. */
typedef struct {
  char connection[32], primary[46];
  int trial;
  bool troubled;
} moved;

static void try_again(mp_client *control, void *context);

/* The trial has had its time: when it does well, the other subflows end. */
static void judge(mp_client *control, void *context) {
  moved *away = context;
  mp_connection *shown = mp_show(control, away->connection);
  bool well = false;
  for (size_t i = 0; shown && i < shown->subflow_count; i++)
    well |= shown->subflows[i].id == away->trial && shown->subflows[i].established && !away->troubled;
  for (size_t i = 0; well && i < shown->subflow_count; i++)
    if (shown->subflows[i].id != away->trial) mp_destroy(control, shown->id, shown->subflows[i].id, false);
  if (shown && !well) mp_after(control, RETRY_MS, try_again, away);
  away->primary[0] = well ? '\0' : away->primary[0];
  mp_connection_free(shown);
}

static void try_again(mp_client *control, void *context) {
  moved *away = context;
  away->troubled = false;
  away->trial = mp_create(control, away->connection, &(mp_wanted){.local = away->primary});
  mp_after(control, PROBATION_MS, judge, away);
}

static void on_event(mp_client *control, const mp_event *event, void *context) {
  moved *away = mp_note(control, event->connection, NULL, sizeof *away);
  (void)context;
  if (!away) return;
  away->troubled |= event->subflow == away->trial;
  if (event->rto <= THRESHOLD_US || away->primary[0]) return;
  mp_connection *shown = mp_show(control, event->connection);
  const mp_address *free_one, *best = NULL; /* what is meant as a backup stands last */
  for (size_t i = 0; shown && (free_one = mp_unused(shown, i)); i++) best = free_one;
  mp_wanted wanted = {.local = best ? best->address : NULL};
  if (shown && mp_heed(control, shown->id, mp_create(control, shown->id, &wanted)) >= 0) {
    strncpy(away->connection, event->connection, sizeof away->connection - 1);
    memcpy(away->primary, event->local.address, sizeof away->primary);
    mp_destroy(control, shown->id, event->subflow, true);
    mp_after(control, RETRY_MS, try_again, away);
  }
  mp_connection_free(shown);
}

int main(int argc, char **argv) {
  const char *const events[] = {"timeout", NULL};
  return mp_finish(mp_begin(argc > 1 ? argv[1] : NULL, events, 0, on_event, NULL));
}
