/* Notes about connections, kept by a session. */
#ifndef MP_STEERING_H
#define MP_STEERING_H

#include <stddef.h>

typedef struct mp_notes mp_notes;

void *mp_notes_find(mp_notes **all, const char *connection, const char *detail, size_t size);
void mp_notes_free(mp_notes *all);

#endif
