/* Smart streaming (SMAPP section 4.3): a second subflow only when a block is late; none whose time-out passes a second. */
#include <manypath.h>

enum { BLOCK = 65536, PERIOD_MS = 1000, BOUND_US = 1000000 };

/* When the block that began last must be half through, and how many bytes that is. */
typedef struct {
  int64_t begun, half_way, half;
} stream;

static bool is_late(stream *known, int64_t now, const mp_connection *shown) {
  int64_t begun = (shown->bytes_written + BLOCK - 1) / BLOCK;
  if (begun > known->begun) {
    known->begun = begun;
    known->half_way = now + PERIOD_MS * 500;
    known->half = begun * BLOCK - BLOCK / 2;
  }
  if (!known->half || now < known->half_way) return false;
  bool late = shown->bytes_acked < known->half;
  known->half = 0;
  return late;
}

static void second_subflow(mp_client *control, const mp_connection *shown) {
  const mp_address *local = mp_unused(shown, 0);
  if (local) mp_heed(control, shown->id, mp_create(control, shown->id, &(mp_wanted){.local = local->address}));
}

static void on_event(mp_client *control, const mp_event *event, void *context) {
  stream *known = mp_note(control, event->connection, NULL, sizeof *known);
  (void)context;
  if (event->sample) {
    if (known && is_late(known, event->at, event->sample)) second_subflow(control, event->sample);
  } else if (event->rto > BOUND_US) {
    mp_connection *shown = mp_show(control, event->connection);
    size_t up = 0;
    for (size_t i = 0; shown && i < shown->subflow_count; i++) up += shown->subflows[i].established;
    if (up > 1) mp_heed(control, shown->id, mp_destroy(control, shown->id, event->subflow, true));
    mp_connection_free(shown);
  }
}

int main(int argc, char **argv) {
  /* A sample twenty times a period shows when a block begins. */
  const char *const events[] = {"timeout", "sample", NULL};
  return mp_finish(mp_begin(argc > 1 ? argv[1] : NULL, events, PERIOD_MS / 20, on_event, NULL));
}
