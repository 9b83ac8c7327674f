#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "place.h"
#include "read.h"
#include "steering.h"

/* Longest line that is taken: a list of many thousand connections. */
#define MAX_LINE (256u << 20)

/* What one line may grow to, and all events that nobody has dispatched: bytes, and for each object, list and member what it takes. */
#define MAX_COST ((size_t)2 << 30)
#define CONTAINER 256
#define MEMBER 96

/* Objects within objects. A sample within an event has five. */
#define MAX_DEPTH 32

/* How long a request may take unless mp_set_timeout() says otherwise. */
#define TIMEOUT_MS 30000

/* So many connections are known to have ended: what is still told about them leaves no notes behind. */
#define ENDED 64

/* A timer that is waiting. */
typedef struct waiting {
  struct waiting *next;
  int64_t due_ms;
  mp_timer *timer;
  void *context;
} waiting;

struct mp_client {
  int fd;
  /* What has arrived: `used` bytes, of which the first `seen` have no line end. */
  char *buffer;
  size_t size, used, seen;
  /* Events that are still to be told: a JSON array whose first `told` have been. */
  json_t *events;
  size_t told;
  /* What these have cost. */
  size_t held;
  int timeout_ms;
  /* The reply of the request under way, and the last refusal. */
  json_t *reply;
  json_t *refusal;
  int64_t next_id;
  mp_handler *handler;
  void *context;
  waiting *timers;
  mp_notes *notes;
  /* The end of a connection is heard for the notes' sake, and told only to a handler that wants it. */
  bool hides_ends;
  char ended[ENDED][32];
  size_t next_ended;
};

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int fail(int why) {
  errno = why;
  return -1;
}

mp_client *mp_connect(const char *who) {
  int fd = mp_place_connect(who);
  if (fd < 0) return NULL;
  mp_client *client = calloc(1, sizeof *client);
  if (client) client->events = json_array();
  if (!client || !client->events) {
    free(client);
    close(fd);
    errno = ENOMEM;
    return NULL;
  }
  client->fd = fd;
  client->next_id = 1;
  client->timeout_ms = TIMEOUT_MS;
  return client;
}

void mp_set_timeout(mp_client *client, int milliseconds) { client->timeout_ms = milliseconds; }

void mp_close(mp_client *client) {
  if (!client) return;
  close(client->fd);
  free(client->buffer);
  json_decref(client->events);
  json_decref(client->reply);
  json_decref(client->refusal);
  for (waiting *timer = client->timers, *next; timer; timer = next) {
    next = timer->next;
    free(timer);
  }
  mp_notes_free(client->notes);
  free(client);
}

void *mp_note(mp_client *client, const char *connection, const char *detail, size_t size) {
  return mp_notes_find(&client->notes, connection, detail, size);
}

/* Timers that were to get memory that is gone are gone with it. */
static void drop_timers(void *context, const void *memory, size_t size) {
  waiting **place = context;
  for (waiting *timer; (timer = *place);) {
    uintptr_t into = (uintptr_t)timer->context - (uintptr_t)memory;
    if (into >= size) {
      place = &timer->next;
      continue;
    }
    *place = timer->next;
    free(timer);
  }
}

/* After an event was told: notes about a connection that has ended are freed. A name that is used again is that of another. */
static void clear_notes(mp_client *client, const json_t *event) {
  const char *what = mp_read_text(event, "event"), *connection = mp_read_text(event, "connection");
  if (!*connection || strlen(connection) >= sizeof client->ended[0]) return;
  char *known = NULL;
  for (size_t i = 0; i < ENDED && !known; i++)
    if (strcmp(client->ended[i], connection) == 0) known = client->ended[i];
  if (known && (strcmp(what, "opening") == 0 || strcmp(what, "created") == 0)) {
    *known = '\0';
    known = NULL;
  } else if (!known && strcmp(what, "closed") == 0) {
    known = client->ended[client->next_ended];
    client->next_ended = (client->next_ended + 1) % ENDED;
    strcpy(known, connection);
  }
  if (known) mp_notes_forget(&client->notes, connection, drop_timers, &client->timers);
}

const char *mp_code(const mp_client *client) { return mp_read_text(client->refusal, "code"); }

const char *mp_message(const mp_client *client) { return mp_read_text(client->refusal, "message"); }

void mp_on_event(mp_client *client, mp_handler *handler, void *context) {
  client->handler = handler;
  client->context = context;
}

int mp_fd(const mp_client *client) { return client->fd; }

/* What a line will take when it is read: two bytes may become several hundred. SIZE_MAX where something lies too deep. */
static size_t cost_of(const char *line, size_t length) {
  size_t cost = length, depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < length; i++) {
    char c = line[i];
    if (in_text) {
      if (c == '\\') i++;
      else if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      cost += CONTAINER;
      if (++depth > MAX_DEPTH) return SIZE_MAX;
    } else if (c == '}' || c == ']') {
      if (depth > 0) depth--;
    } else if (c == ',' || c == ':') {
      cost += MEMBER;
    }
  }
  return cost;
}

/* Sorts a line: events wait, a reply is kept. */
static int take_line(mp_client *client, const char *line, size_t length) {
  size_t cost = cost_of(line, length);
  if (cost > MAX_COST) return fail(EPROTO);
  json_t *json = json_loadb(line, length, 0, NULL);
  if (!json_is_object(json)) {
    json_decref(json);
    return fail(EPROTO);
  }
  if (json_object_get(json, "event")) {
    if (client->held > MAX_COST - cost) {
      json_decref(json);
      return fail(ENOBUFS);
    }
    client->held += cost;
    return json_array_append_new(client->events, json) ? fail(ENOMEM) : 0;
  }
  json_decref(client->reply);
  client->reply = json;
  return 0;
}

static int take_lines(mp_client *client) {
  size_t begin = 0;
  int error = 0; /* a line that cannot be read is told once, and those after it count */
  for (char *end; (end = memchr(client->buffer + client->seen, '\n', client->used - client->seen));) {
    size_t length = (size_t)(end - client->buffer) - begin;
    if (length > 0 && take_line(client, client->buffer + begin, length) < 0) error = errno;
    begin += length + 1;
    client->seen = begin;
  }
  client->used -= begin;
  client->seen = client->used;
  memmove(client->buffer, client->buffer + begin, client->used);
  return error ? fail(error) : 0;
}

/* Takes what is there, or waits for something. */
static int receive(mp_client *client) {
  if (client->size - client->used < 1 << 16) {
    if (client->size >= MAX_LINE) return fail(ENOBUFS);
    size_t size = client->size ? client->size * 2 : 1 << 17;
    char *larger = realloc(client->buffer, size);
    if (!larger) return fail(ENOMEM);
    client->buffer = larger;
    client->size = size;
  }
  ssize_t got;
  do {
    got = recv(client->fd, client->buffer + client->used, client->size - client->used, 0);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return got < 0 ? -1 : fail(ECONNRESET);
  client->used += (size_t)got;
  return take_lines(client);
}

/* Waits until the session is readable, or writable, or the time is over. -1 as a time is for ever. */
static int await(mp_client *client, short events, int64_t until_ms) {
  struct pollfd poll_fd = {.fd = client->fd, .events = events};
  for (;;) {
    int64_t left = until_ms < 0 ? -1 : until_ms - now_ms();
    if (until_ms >= 0 && left <= 0) return fail(ETIMEDOUT);
    int ready = poll(&poll_fd, 1, left > INT_MAX ? INT_MAX : (int)left);
    if (ready > 0) return 0;
    if (ready < 0 && errno != EINTR) return -1;
  }
}

static int write_line(mp_client *client, json_t *request, int64_t until_ms) {
  char *text = json_dumps(request, JSON_COMPACT);
  if (!text) return fail(ENOMEM);
  size_t length = strlen(text);
  text[length++] = '\n'; /* in the place of the terminator */
  ssize_t sent = 0;
  for (size_t done = 0; done < length; done += (size_t)sent) {
    do {
      sent = send(client->fd, text + done, length - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN && await(client, POLLOUT, until_ms) == 0) errno = EINTR;
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) break;
  }
  free(text);
  return sent < 0 ? (errno == EPIPE ? fail(ECONNRESET) : -1) : 0;
}

/* Asks and waits for the reply, which is the caller's. Takes the request. NULL when it is refused or failed. */
static json_t *ask(mp_client *client, json_t *request) {
  json_int_t id = client->next_id++;
  json_decref(client->refusal);
  client->refusal = NULL;
  bool ready = request && json_object_set_new(request, "id", json_integer(id)) == 0;
  int64_t until_ms = client->timeout_ms < 0 ? -1 : now_ms() + client->timeout_ms;
  int result = ready ? write_line(client, request, until_ms) : fail(ENOMEM);
  json_decref(request);
  while (result == 0) {
    json_t *reply = client->reply;
    if (!reply) {
      result = await(client, POLLIN, until_ms);
      if (result == 0) result = receive(client);
      continue;
    }
    client->reply = NULL;
    json_t *answered = json_object_get(reply, "id");
    /* What could not be read as a request has no id. */
    if (answered && json_integer_value(answered) != id) {
      json_decref(reply);
    } else if (strcmp(mp_read_text(reply, "reply"), "error") == 0) {
      client->refusal = reply;
      result = fail(ECANCELED);
    } else {
      return reply;
    }
  }
  return NULL;
}

/* Of a request whose reply has nothing, or one number, to say. */
static int ask_number(mp_client *client, json_t *request, const char *name) {
  json_t *reply = ask(client, request);
  if (!reply) return -1;
  int64_t number = name ? mp_read_number(reply, name, 0) : 0;
  json_decref(reply);
  /* -1 is a failure, and no number of the protocol is negative. */
  return number < 0 || number > INT_MAX ? fail(EPROTO) : (int)number;
}

/* `s` of json_pack would refuse NULL, `s*` leaves it out. */
static json_t *about(const char *request, const char *connection) {
  return json_pack("{s:s, s:s*}", "request", request, "connection", connection);
}

int mp_subscribe(mp_client *client, const char *const *events, const char *connection, unsigned sample_ms) {
  json_t *request = about("subscribe", connection);
  json_t *names = json_array();
  bool all = !events || !*events, ends = all;
  for (; events && *events; events++) {
    json_array_append_new(names, json_string(*events));
    ends |= strcmp(*events, "closed") == 0;
  }
  client->hides_ends = !ends;
  if (!ends) json_array_append_new(names, json_string("closed"));
  json_object_set_new(request, "events", names);
  if (sample_ms) json_object_set_new(request, "sample_ms", json_integer(sample_ms));
  return ask_number(client, request, NULL);
}

int mp_claim(mp_client *client, const char *connection, bool force) {
  json_t *request = about("claim", connection);
  json_object_set_new(request, "force", json_boolean(force));
  return ask_number(client, request, NULL);
}

int mp_release(mp_client *client, const char *connection) {
  return ask_number(client, about("release", connection), NULL);
}

mp_connection *mp_show(mp_client *client, const char *connection) {
  json_t *reply = ask(client, about("show", connection));
  if (!reply) return NULL;
  mp_owned *owned = malloc(sizeof *owned);
  if (owned && !mp_read_connection(json_object_get(reply, "connection"), owned)) {
    free(owned);
    owned = NULL;
  }
  json_decref(reply);
  if (!owned) errno = ENOMEM;
  return owned ? &owned->shown : NULL;
}

void mp_connection_free(mp_connection *connection) {
  if (!connection) return;
  mp_owned *owned = (mp_owned *)connection;
  mp_forget_connection(owned);
  free(owned);
}

int mp_each(mp_client *client, void (*each)(mp_client *, const mp_connection *, void *), void *context) {
  json_t *reply = ask(client, about("list", NULL));
  if (!reply) return -1;
  json_t *list = json_object_get(json_object_get(reply, "process"), "connections");
  size_t count = json_array_size(list);
  for (size_t i = 0; i < count; i++) {
    mp_owned owned;
    if (!mp_read_connection(json_array_get(list, i), &owned)) {
      json_decref(reply);
      return fail(ENOMEM);
    }
    each(client, &owned.shown, context);
    mp_forget_connection(&owned);
  }
  json_decref(reply);
  return (int)count;
}

int mp_why(mp_client *client, const char *connection, void (*each)(mp_client *, const mp_decision *, void *),
           void *context) {
  json_t *reply = ask(client, about("why", connection));
  if (!reply) return -1;
  json_t *list = json_object_get(reply, "decisions");
  size_t count = json_array_size(list);
  for (size_t i = 0; i < count; i++) {
    const json_t *entry = json_array_get(list, i);
    mp_decision decision = {
        .ago = mp_read_number(entry, "ago_us", -1),
        .decision = mp_read_text(entry, "decision"),
        .reason = mp_read_text(entry, "reason"),
    };
    each(client, &decision, context);
  }
  json_decref(reply);
  return (int)count;
}

/* Adds what is given; empty and 0 are left to the process. */
static void add_end(json_t *request, const char *name, const char *address, const char *port_name, uint16_t port) {
  if (address && *address) json_object_set_new(request, name, json_string(address));
  if (port) json_object_set_new(request, port_name, json_integer(port));
}

int mp_create(mp_client *client, const char *connection, const mp_wanted *wanted) {
  json_t *request = about("subflow_create", connection);
  if (wanted) {
    add_end(request, "local", wanted->local, "local_port", wanted->local_port);
    add_end(request, "remote", wanted->remote, "remote_port", wanted->remote_port);
    json_object_set_new(request, "backup", json_boolean(wanted->backup));
  }
  return ask_number(client, request, "subflow");
}

int mp_destroy(mp_client *client, const char *connection, int subflow, bool reset) {
  json_t *request = about("subflow_destroy", connection);
  json_object_set_new(request, "subflow", json_integer(subflow));
  json_object_set_new(request, "reset", json_boolean(reset));
  return ask_number(client, request, NULL);
}

int mp_set_backup(mp_client *client, const char *connection, int subflow, bool backup) {
  json_t *request = about("set_flags", connection);
  json_object_set_new(request, "subflow", json_integer(subflow));
  json_object_set_new(request, "backup", json_boolean(backup));
  return ask_number(client, request, NULL);
}

int mp_announce(mp_client *client, const char *connection, const char *address, uint16_t port) {
  json_t *request = about("announce", connection);
  add_end(request, "address", address, "port", port);
  return ask_number(client, request, "address_id");
}

int mp_remove(mp_client *client, const char *connection, int address_id) {
  json_t *request = about("remove", connection);
  json_object_set_new(request, "address_id", json_integer(address_id));
  return ask_number(client, request, NULL);
}

int mp_set_limits(mp_client *client, const char *connection, int subflows, int add_addr_accepted) {
  json_t *request = about("set_limits", connection);
  if (subflows >= 0) json_object_set_new(request, "subflows", json_integer(subflows));
  if (add_addr_accepted >= 0) json_object_set_new(request, "add_addr_accepted", json_integer(add_addr_accepted));
  return ask_number(client, request, NULL);
}

int mp_set_policy(mp_client *client, const char *connection, const char *policy) {
  json_t *request = about("set_policy", connection);
  json_object_set_new(request, "policy", json_string(policy));
  return ask_number(client, request, NULL);
}

int mp_after(mp_client *client, int delay_ms, mp_timer *timer, void *context) {
  waiting *new = malloc(sizeof *new);
  if (!new) return fail(ENOMEM);
  *new = (waiting){.due_ms = now_ms() + (delay_ms > 0 ? delay_ms : 0), .timer = timer, .context = context};
  waiting **place = &client->timers;
  while (*place && (*place)->due_ms <= new->due_ms) place = &(*place)->next;
  new->next = *place;
  *place = new;
  return 0;
}

static bool event_waits(const mp_client *client) { return client->told < json_array_size(client->events); }

int mp_timeout(const mp_client *client) {
  if (event_waits(client)) return 0;
  if (!client->timers) return -1;
  int64_t left = client->timers->due_ms - now_ms();
  return left < 0 ? 0 : left > 1 << 30 ? 1 << 30 : (int)left;
}

static void run_timers(mp_client *client) {
  for (int64_t now = now_ms(); client->timers && client->timers->due_ms <= now;) {
    waiting due = *client->timers;
    free(client->timers);
    client->timers = due.next;
    due.timer(client, due.context);
  }
}

/* Tells the next event. It has left the queue by then, since the handler may ask for more. */
static int tell(mp_client *client) {
  json_t *json = json_incref(json_array_get(client->events, client->told++));
  if (!event_waits(client)) {
    json_array_clear(client->events);
    client->told = 0;
    client->held = 0;
  }
  json_t *sample = json_object_get(json, "sample");
  bool hidden = client->hides_ends && strcmp(mp_read_text(json, "event"), "closed") == 0;
  bool wanted = client->handler && !hidden;
  mp_owned owned;
  int result = 0;
  if (wanted && sample && !mp_read_connection(sample, &owned)) {
    result = fail(ENOMEM);
  } else if (wanted) {
    mp_event event;
    mp_read_event(json, sample ? &owned.shown : NULL, &event);
    client->handler(client, &event, client->context);
    if (sample) mp_forget_connection(&owned);
  }
  clear_notes(client, json);
  json_decref(json);
  return result;
}

int mp_dispatch(mp_client *client, int wait_ms) {
  int until = mp_timeout(client);
  int wait = until >= 0 && (wait_ms < 0 || until < wait_ms) ? until : wait_ms;
  struct pollfd poll_fd = {.fd = client->fd, .events = POLLIN};
  int ready = poll(&poll_fd, 1, wait);
  if (ready < 0 && errno != EINTR) return -1;
  /* What came before the end is told before the end. */
  if (ready > 0 && receive(client) < 0 && !(errno == ECONNRESET && event_waits(client))) return -1;
  int count = 0;
  for (run_timers(client); event_waits(client); run_timers(client)) {
    if (tell(client) < 0) return -1;
    count++;
  }
  return count;
}

int mp_run(mp_client *client) {
  while (mp_dispatch(client, -1) >= 0) continue;
  return errno == ECONNRESET ? 0 : -1;
}
