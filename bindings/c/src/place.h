/* Where the sockets of processes are. */
#ifndef MANYPATH_PLACE_H
#define MANYPATH_PLACE_H

/* A connected socket, see mp_connect(); -1 and errno on failure. */
int mp_place_connect(const char *who);

#endif
