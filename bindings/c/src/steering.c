/* What every controller does beside deciding, over the calls of the session. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read.h"
#include "steering.h"

struct mp_notes {
  struct mp_notes *next;
  char key[96];
  size_t size;
  max_align_t content[];
};

void *mp_notes_find(mp_notes **all, const char *connection, const char *detail, size_t size) {
  char key[sizeof(*all)->key];
  int length = snprintf(key, sizeof key, "%s %s", connection, detail ? detail : "");
  if (length < 0 || (size_t)length >= sizeof key) return errno = ENAMETOOLONG, NULL;
  for (mp_notes *one = *all; one; one = one->next)
    if (strcmp(one->key, key) == 0) return one->content;
  mp_notes *one = calloc(1, sizeof *one + size);
  if (!one) return NULL;
  memcpy(one->key, key, sizeof key);
  one->size = size;
  one->next = *all;
  *all = one;
  return one->content;
}

void mp_notes_forget(mp_notes **all, const char *connection, void (*gone)(void *, const void *, size_t), void *context) {
  size_t length = strlen(connection);
  for (mp_notes **place = all, *one; (one = *place);) {
    if (strncmp(one->key, connection, length) != 0 || one->key[length] != ' ') {
      place = &one->next;
      continue;
    }
    *place = one->next;
    gone(context, one->content, one->size);
    free(one);
  }
}

void mp_notes_free(mp_notes *all) {
  for (mp_notes *next; all; all = next) {
    next = all->next;
    free(all);
  }
}

static bool is_used(const mp_connection *shown, const char *address) {
  for (size_t i = 0; i < shown->subflow_count; i++)
    if (strcmp(shown->subflows[i].local.address, address) == 0) return true;
  return false;
}

const mp_address *mp_unused(const mp_connection *shown, size_t n) {
  for (int backup = 0; shown->may_join && backup <= 1; backup++)
    for (size_t i = 0; i < shown->address_count; i++) {
      const mp_address *one = &shown->addresses[i];
      if (one->up && one->backup == (backup == 1) && !is_used(shown, one->address) && n-- == 0) return one;
    }
  return NULL;
}

int mp_heed(const mp_client *client, const char *connection, int result) {
  if (result < 0) fprintf(stderr, "%s: %s\n", connection, errno == ECANCELED ? mp_message(client) : strerror(errno));
  return result;
}

mp_client *mp_begin(const char *who, const char *const *events, unsigned sample_ms, mp_handler *handler, void *context) {
  mp_client *client = mp_connect(who);
  if (client) mp_on_event(client, handler, context);
  if (client && mp_subscribe(client, events, NULL, sample_ms) == 0 && mp_claim(client, NULL, false) == 0) return client;
  bool refused = client && errno == ECANCELED;
  fprintf(stderr, "no connections to steer: %s\n", refused ? mp_message(client) : strerror(errno));
  mp_close(client);
  return NULL;
}

int mp_finish(mp_client *client) {
  int result = client ? mp_run(client) : -1;
  if (client && result < 0) perror("the session ends");
  mp_close(client);
  return result < 0;
}
