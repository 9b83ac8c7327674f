/* What every example does: open a session, keep something for each connection, and say what goes wrong. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <manypath.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with a reason. */
static inline void give_up(const char *what) {
  perror(what);
  exit(1);
}

/* Says why a request about a connection was refused, and goes on. */
static inline int check(mp_client *control, const char *connection, int result) {
  if (result < 0) fprintf(stderr, "%s: %s\n", connection, mp_message(control));
  return result;
}

/* Whether a subflow begins at the address. */
static inline bool uses(const mp_connection *shown, const char *address) {
  for (size_t i = 0; i < shown->subflow_count; i++)
    if (strcmp(shown->subflows[i].local.address, address) == 0) return true;
  return false;
}

/* One note for each connection: its size, and how many there are. */
typedef struct {
  void **notes;
  size_t count;
} notebook;

/* The note of a connection: a structure of so many bytes that begins with its name in 32; all else is 0 at first. */
static inline void *find_or_add(const char *connection, size_t size, notebook *book) {
  for (size_t i = 0; i < book->count; i++)
    if (strcmp(book->notes[i], connection) == 0) return book->notes[i];
  void **more = realloc(book->notes, (book->count + 1) * sizeof *more);
  char *note = calloc(1, size);
  if (!more || !note) give_up("memory");
  snprintf(note, 32, "%s", connection);
  book->notes = more;
  book->notes[book->count++] = note;
  return note;
}

/* A session with the process that the command line names. */
static inline mp_client *begin(int argc, char **argv) {
  mp_client *control = mp_connect(argc > 1 ? argv[1] : NULL);
  if (!control) give_up("a process with a control socket");
  return control;
}

/* Subscribes, owns all connections, and steers until the process is gone. Handlers find an empty notebook as their context. */
static inline int steer(mp_client *control, const char *const *events, unsigned sample_ms, mp_handler *handler) {
  notebook book = {0};
  mp_on_event(control, handler, &book);
  if (mp_subscribe(control, events, NULL, sample_ms) < 0 || mp_claim(control, NULL, false) < 0) give_up("subscribe");
  if (mp_run(control) < 0) give_up("events");
  for (size_t i = 0; i < book.count; i++) free(book.notes[i]);
  free(book.notes);
  mp_close(control);
  return 0;
}

#endif
