/* Notes about connections, kept by a session. */
#ifndef MP_STEERING_H
#define MP_STEERING_H

#include <stddef.h>

typedef struct mp_notes mp_notes;

void *mp_notes_find(mp_notes **all, const char *connection, const char *detail, size_t size);
/* Frees the notes about a connection, and hands the memory of each to `gone` first. */
void mp_notes_forget(mp_notes **all, const char *connection, void (*gone)(void *, const void *, size_t), void *context);
void mp_notes_free(mp_notes *all);

#endif
