/* Seeing and steering Multipath TCP connections of other processes, over their control socket (docs/control.md).
 *
 * A session is one socket. A program with an event loop of its own polls mp_fd() for reading, at most mp_timeout()
 * milliseconds, and calls mp_dispatch(client, 0); any other calls mp_run(). Events reach the one handler of the session.
 * Requests wait for their reply, also within a handler; what happens meanwhile is told afterwards, in its order.
 *
 * Times are in microseconds unless a name ends in _ms, amounts in bytes, rates in bytes a second; -1 is what is not known.
 * Strings are never NULL, but may be empty. A session belongs to one thread at a time.
 *
 * Functions that give an int give -1 on failure, and nothing below 0 otherwise, and set errno:
 *   ECANCELED   the process refuses; mp_code() and mp_message() say why
 *   ECONNRESET  the process is gone
 *   EPROTO      what it says is not the protocol, such as a number that there cannot be
 *   ETIMEDOUT   it did not answer in time (mp_set_timeout()); a late reply is thrown away
 *   ENOBUFS     it says more than there is memory for: the session is over
 *   or what the system reported (ENOMEM, EPIPE...).
 */
#ifndef MANYPATH_H
#define MANYPATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct mp_client mp_client;

/* An address and port; empty and 0 where there is none. */
typedef struct {
  char address[46];
  uint16_t port;
} mp_end;

/* One of our addresses, as a connection knows it. */
typedef struct {
  int id;
  const char *iface;
  const char *address;
  bool backup;    /* peers are to use it only when nothing better is left */
  bool up;        /* it can be used now */
  bool announced; /* the peer was told of it */
} mp_address;

/* A live subflow. */
typedef struct {
  int id;
  const char *iface;
  mp_end local, remote;
  int local_id, remote_id;
  const char *origin; /* why it was made */
  const char *phase;  /* handshake, pre-established, established, closing */
  const char *tcp_state;
  bool established; /* it carries data, or could */
  bool backup_here, backup_there;
  bool stale; /* in a retransmission time-out */
  int64_t age, srtt, min_rtt, rto;
  int backoffs;
  int64_t cwnd, ssthresh, pacing_rate, delivery_rate, inflight, mss;
  int64_t bytes_sent, bytes_acked, bytes_received, bytes_retransmitted, bytes_reinjected;
  int64_t retransmissions, timeouts;
} mp_subflow;

/* A connection, as it was when it was asked for. */
typedef struct {
  const char *id; /* its name within the process */
  const char *role, *state, *level, *token;
  const char *scheduler, *congestion, *path_manager;
  mp_end local, remote;
  int64_t age, bytes_written, bytes_acked, bytes_received, bytes_read, bytes_reinjected;
  int64_t send_queue, recv_queue, peer_window;
  bool may_join;    /* subflows may be added now */
  bool may_create;  /* subflows may be asked for: they are made now, or as soon as the connection is fully established */
  int held_up_by;   /* the subflow that carries the oldest unacknowledged byte */
  size_t address_count, subflow_count;
  const mp_address *addresses;
  const mp_subflow *subflows;
} mp_connection;

/* Something happened. What does not fit the event is empty, or -1. Valid until the handler returns. */
typedef struct {
  const char *event; /* opening, created, established, closed, fallback, sub_established, sub_closed, sub_priority, announced,
                        removed, timeout, new_local_addr, del_local_addr, decision, sample, lost */
  int64_t seq;       /* rises by one for each event of the process */
  int64_t at;        /* since the process began */
  const char *connection;
  int subflow;
  mp_end local, remote;
  int local_id, remote_id;
  bool backup, server_side;
  const char *origin;
  const char *cause;              /* why something ended */
  int error;                      /* the same as an errno of Linux; 0 for an orderly end */
  int reset_reason;               /* RFC 8684 section 3.6 */
  int transient;                  /* 1: the peer said that trying again makes sense, 0: that it does not */
  int64_t rto;
  int backoffs;
  const char *address;
  const char *decision, *reason;  /* of a decision, which has to be subscribed to by its name */
  const mp_connection *sample;    /* of a sample: the connection; else NULL */
  int64_t lost_samples, lost_events;
} mp_event;

/* An entry of a connection's decision log. */
typedef struct {
  int64_t ago;
  const char *decision, *reason;
} mp_decision;

/* A subflow that is wanted: any part of a four-tuple; NULL and 0 are chosen by the process. */
typedef struct {
  const char *local;
  uint16_t local_port;
  const char *remote;
  uint16_t remote_port;
  bool backup;
} mp_wanted;

typedef void mp_handler(mp_client *client, const mp_event *event, void *context);
typedef void mp_timer(mp_client *client, void *context);

/* Opens a session with a process: by its id, by the path of its socket, or, with NULL, with the only one that this user
 * has. NULL on failure; errno is ENOENT where there is no such process, and ENOTUNIQ where there are several. */
mp_client *mp_connect(const char *who);
/* How long each request with its reply may take: 30,000 milliseconds unless this is called, -1 for ever. mp_connect() itself
 * waits 30 seconds at most. */
void mp_set_timeout(mp_client *client, int milliseconds);
/* Ends the session, and with it every claim. Not within a handler. */
void mp_close(mp_client *client);

/* Why the last request was refused: a word for programs (not_found, owned, no_path, no_port, limit, state, invalid,
 * denied), and a sentence for people. Valid until the next request. */
const char *mp_code(const mp_client *client);
const char *mp_message(const mp_client *client);

/* What is called for each event; it replaces the one before. */
void mp_on_event(mp_client *client, mp_handler *handler, void *context);
/* Calls `timer` once, from mp_dispatch() or mp_run(), when so much time has passed. */
int mp_after(mp_client *client, int delay_ms, mp_timer *timer, void *context);
/* Readable when events wait. */
int mp_fd(const mp_client *client);
/* How long to wait for mp_fd(), as poll() takes it: -1 for ever, 0 when something waits already. */
int mp_timeout(const mp_client *client);
/* Waits at most so long (-1: until something happens), and calls the handler and the timers that are due. Gives how many
 * events were told. */
int mp_dispatch(mp_client *client, int wait_ms);
/* Dispatches until the process is gone (0) or something fails (-1). */
int mp_run(mp_client *client);

/* Events of these names (NULL-terminated; NULL for all), of one connection or, with NULL, of all, and a sample of each every
 * so many milliseconds, 0 for none. A second subscription takes the place of the first. */
int mp_subscribe(mp_client *client, const char *const *events, const char *connection, unsigned sample_ms);

/* Owns a connection, or with NULL all that nobody owns, now and later; their own policies stand still. */
int mp_claim(mp_client *client, const char *connection, bool force);
int mp_release(mp_client *client, const char *connection);

/* One connection; to be freed. NULL on failure, as above. */
mp_connection *mp_show(mp_client *client, const char *connection);
void mp_connection_free(mp_connection *connection);
/* Calls `each` for every connection, oldest first; what it is given ends with the call. Gives how many there were. */
int mp_each(mp_client *client, void (*each)(mp_client *, const mp_connection *, void *), void *context);
/* Calls `each` for every entry of the decision log, oldest first. Gives how many there were. */
int mp_why(mp_client *client, const char *connection, void (*each)(mp_client *, const mp_decision *, void *), void *context);

/* Opens a subflow and gives its number; 0 while it can only be noted for later. NULL for `wanted` leaves everything to the process. */
int mp_create(mp_client *client, const char *connection, const mp_wanted *wanted);
/* Ends a subflow, by a FIN or by a reset. */
int mp_destroy(mp_client *client, const char *connection, int subflow, bool reset);
/* Lets both ends use a subflow only when nothing better is left, or no longer. */
int mp_set_backup(mp_client *client, const char *connection, int subflow, bool backup);
/* Tells the peer one of our addresses and gives its identifier; port 0 is the connection's. */
int mp_announce(mp_client *client, const char *connection, const char *address, uint16_t port);
/* Withdraws one of our addresses. */
int mp_remove(mp_client *client, const char *connection, int address_id);
/* Changes the limits of a connection; -1 leaves one as it is. */
int mp_set_limits(mp_client *client, const char *connection, int subflows, int add_addr_accepted);
/* Lets another policy of the process itself decide: "fullmesh", "smart-backup:threshold=1s"... */
int mp_set_policy(mp_client *client, const char *connection, const char *policy);

/* For programs that do nothing else than steer. */

/* Opens a session, subscribes as mp_subscribe() does, and owns all connections that nobody else owns. NULL on failure, which
 * is told on standard error. */
mp_client *mp_begin(const char *who, const char *const *events, unsigned sample_ms, mp_handler *handler, void *context);
/* Steers until the process is gone, and ends the session. Gives what main() is to return; 1 without a session. */
int mp_finish(mp_client *client);
/* Says on standard error why a request about a connection failed, if it did; gives its result. */
int mp_heed(const mp_client *client, const char *connection, int result);
/* What is noted about a connection, or a detail of it (NULL for none): always the same memory of so many bytes, all 0 at
 * first, until the connection's `closed` event has been told, whether the handler wants that or not; then it is freed, and timers
 * whose context it is or lies in it are dropped. NULL without memory. */
void *mp_note(mp_client *client, const char *connection, const char *detail, size_t size);
/* The n-th of our usable addresses from which no subflow leaves, backup ones last; NULL when there are not so many, or no
 * subflow may be added. */
const mp_address *mp_unused(const mp_connection *connection, size_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
