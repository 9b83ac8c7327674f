/* From JSON to the structures of manypath.h. */
#ifndef MANYPATH_READ_H
#define MANYPATH_READ_H

#include <jansson.h>

#include "../manypath.h"

/* A connection with the memory that its lists take. */
typedef struct {
  mp_connection shown; /* first, so that a pointer to it is one to the whole */
  json_t *json;        /* owns the strings */
} mp_owned;

/* A text of an object; empty where it has none. */
const char *mp_read_text(const json_t *object, const char *name);
/* A number of an object, or what stands for none. */
int64_t mp_read_number(const json_t *object, const char *name, int64_t none);
/* Takes a reference of its own. False when memory is out. */
bool mp_read_connection(json_t *json, mp_owned *out);
void mp_forget_connection(mp_owned *owned);
/* `sample` has been read before, or is NULL. */
void mp_read_event(const json_t *json, const mp_connection *sample, mp_event *out);

#endif
