/* The library against a process that a thread plays: each reply has an event in front of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <manypath.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
  do { \
    if (!(what)) { \
      fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #what, errno, strerror(errno)); \
      exit(1); \
    } \
  } while (0)

#define EVENT \
  "{\"event\":\"timeout\",\"seq\":%d,\"at_us\":5,\"connection\":\"3.1\",\"subflow\":2,\"rto_us\":400000,\"backoffs\":1," \
  "\"local\":\"[2001:db8::1]:5000\"}\n"
#define SHOWN \
  "{\"id\":\"3.1\",\"may_join\":true,\"added_later\":[1],\"local_addresses\":[{\"id\":0,\"address\":\"10.0.0.1\"," \
  "\"up\":true}],\"subflows\":[{\"id\":2,\"phase\":\"established\",\"local\":\"10.0.0.1:5000\",\"srtt_us\":null}]}"

/* What the process was asked, without the ids, and how it answers. */
typedef struct {
  char path[64];
  int listener;
  char asked[4096];
  pthread_t thread;
} process;

static const char *answer(const char *asked) {
  if (strstr(asked, "\"show\"")) return "\"reply\":\"connection\",\"connection\":" SHOWN;
  if (strstr(asked, "\"list\"")) return "\"reply\":\"process\",\"process\":{\"connections\":[" SHOWN "," SHOWN "]}";
  if (strstr(asked, "\"why\"")) return "\"reply\":\"decisions\",\"decisions\":[{\"ago_us\":1,\"decision\":\"d\",\"reason\":\"r\"}]";
  if (strstr(asked, "\"subflow_create\"")) return "\"reply\":\"done\",\"subflow\":4";
  if (strstr(asked, "\"remove\"")) return "\"reply\":\"error\",\"code\":\"not_found\",\"message\":\"no such address\"";
  return "\"reply\":\"done\"";
}

static void *serve(void *context) {
  process *played = context;
  int fd = accept(played->listener, NULL, NULL);
  FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
  char line[1024];
  for (int seq = 1; fgets(line, sizeof line, in); seq++) {
    char *id = strstr(line, "\"id\":");
    CHECK(id);
    fprintf(out, EVENT "{\"id\":%d,%s}\n", seq, atoi(id + 5), answer(line));
    fflush(out);
    /* ids are at the end of a line, as they were added last */
    strncat(played->asked, line, (size_t)(id - line) - 1);
    strcat(played->asked, "\n");
    if (strstr(line, "\"release\"")) break;
  }
  fclose(in);
  fclose(out);
  return NULL;
}

/* Listens where nobody else does. */
static void open_process(process *played) {
  memset(played, 0, sizeof *played);
  strcpy(played->path, "/tmp/manypath-test-XXXXXX");
  CHECK(mkdtemp(played->path));
  strcat(played->path, "/7.sock");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, played->path);
  played->listener = socket(AF_UNIX, SOCK_STREAM, 0);
  CHECK(bind(played->listener, (const struct sockaddr *)&address, sizeof address) == 0);
  CHECK(listen(played->listener, 1) == 0);
}

static void close_process(process *played) {
  close(played->listener);
  unlink(played->path);
  *strrchr(played->path, '/') = '\0';
  rmdir(played->path);
}

static int told, timed, listed;
static int64_t last_seq;

static void on_event(mp_client *client, const mp_event *event, void *context) {
  CHECK(context == &told);
  CHECK(strcmp(event->event, "timeout") == 0 && strcmp(event->connection, "3.1") == 0);
  CHECK(event->subflow == 2 && event->rto == 400000 && event->backoffs == 1 && event->transient == -1);
  CHECK(strcmp(event->local.address, "2001:db8::1") == 0 && event->local.port == 5000);
  CHECK(event->seq == last_seq + 1);
  last_seq = event->seq;
  told++;
  /* A handler may ask, and its own event is told later, not within. */
  if (told == 1) CHECK(mp_set_backup(client, "3.1", 2, true) == 0 && told == 1);
}

static void on_connection(mp_client *client, const mp_connection *shown, void *context) {
  CHECK(client && !context && strcmp(shown->id, "3.1") == 0);
  listed++;
}

static void on_decision(mp_client *client, const mp_decision *decision, void *context) {
  CHECK(client && !context && decision->ago == 1);
  CHECK(strcmp(decision->decision, "d") == 0 && strcmp(decision->reason, "r") == 0);
  listed++;
}

static void on_timer(mp_client *client, void *context) {
  CHECK(client && timed == *(int *)context);
  timed++;
}

static void requests_and_events(void) {
  process played;
  open_process(&played);
  CHECK(pthread_create(&played.thread, NULL, serve, &played) == 0);
  mp_client *client = mp_connect(played.path);
  CHECK(client);
  mp_on_event(client, on_event, &told);
  CHECK(mp_subscribe(client, (const char *const[]){"timeout", NULL}, NULL, 50) == 0);
  mp_connection *shown = mp_show(client, "3.1");
  CHECK(shown && shown->may_join && shown->address_count == 1 && shown->subflow_count == 1);
  CHECK(shown->subflows[0].established && shown->subflows[0].srtt == -1 && shown->subflows[0].id == 2);
  CHECK(strcmp(shown->subflows[0].local.address, shown->addresses[0].address) == 0);
  CHECK(mp_create(client, "3.1", &(mp_wanted){.local = "10.1.0.1", .backup = true}) == 4);
  CHECK(mp_remove(client, "3.1", 9) == -1 && errno == ECANCELED);
  CHECK(strcmp(mp_code(client), "not_found") == 0 && strcmp(mp_message(client), "no such address") == 0);
  CHECK(mp_each(client, on_connection, NULL) == 2 && mp_why(client, "3.1", on_decision, NULL) == 1 && listed == 3);
  CHECK(told == 0 && mp_timeout(client) == 0);
  CHECK(mp_dispatch(client, 0) == 7 && told == 7);
  CHECK(mp_timeout(client) == -1 && mp_dispatch(client, 0) == 0);
  mp_connection_free(shown);

  int order[] = {0, 1};
  CHECK(mp_after(client, 1, on_timer, &order[1]) == 0 && mp_after(client, 0, on_timer, &order[0]) == 0);
  while (timed < 2) CHECK(mp_dispatch(client, -1) == 0);

  CHECK(mp_claim(client, "3.1", true) == 0 && mp_release(client, NULL) == 0);
  CHECK(mp_run(client) == 0 && told == 9);
  CHECK(mp_claim(client, NULL, false) == -1 && errno == ECONNRESET);
  mp_close(client);
  pthread_join(played.thread, NULL);
  close_process(&played);
  const char *wanted = "{\"request\":\"subscribe\",\"events\":[\"timeout\",\"closed\"],\"sample_ms\":50\n"
                       "{\"request\":\"show\",\"connection\":\"3.1\"\n"
                       "{\"request\":\"subflow_create\",\"connection\":\"3.1\",\"local\":\"10.1.0.1\",\"backup\":true\n"
                       "{\"request\":\"remove\",\"connection\":\"3.1\",\"address_id\":9\n"
                       "{\"request\":\"list\"\n"
                       "{\"request\":\"why\",\"connection\":\"3.1\"\n"
                       "{\"request\":\"set_flags\",\"connection\":\"3.1\",\"subflow\":2,\"backup\":true\n"
                       "{\"request\":\"claim\",\"connection\":\"3.1\",\"force\":true\n"
                       "{\"request\":\"release\"\n";
  if (strcmp(played.asked, wanted) != 0) fprintf(stderr, "asked:\n%s", played.asked);
  CHECK(strcmp(played.asked, wanted) == 0);
}

/* Notes end with their connection and so do the timers that were to get them; those about others stay. */
static void *first_note, *other_note;
static int notes_told, dropped;

static void on_noted(mp_client *client, const mp_event *event, void *context) {
  int *note = mp_note(client, event->connection, "detail", sizeof *note);
  CHECK(note && !context && strcmp(event->event, "closed") != 0);
  if (strcmp(event->connection, "3.1") == 0 && notes_told == 0) first_note = note;
  if (strcmp(event->connection, "3.10") == 0) {
    CHECK(!other_note || other_note == note);
    other_note = note;
  }
  /* What was noted is there as long as the connection is, and not when another one has its name. */
  static const int before[] = {0, 0, 1, 0, 0, 1};
  CHECK(*note == before[notes_told]);
  *note = 1;
  notes_told++;
}

static void never(mp_client *client, void *context) {
  CHECK(client && context);
  dropped++;
}

static void notes_end_with_their_connection(void) {
  process played;
  open_process(&played);
  mp_client *client = mp_connect(played.path);
  CHECK(client);
  mp_on_event(client, on_noted, NULL);
  int fd = accept(played.listener, NULL, NULL);
  /* The subscription's own reply comes first. */
  dprintf(fd, "{\"id\":1,\"reply\":\"done\"}\n");
  CHECK(mp_subscribe(client, (const char *const[]){"timeout", "sub_closed", "created", NULL}, NULL, 0) == 0);
  const char *line = "{\"event\":\"%s\",\"connection\":\"%s\"}\n";
  dprintf(fd, line, "timeout", "3.1");
  CHECK(mp_dispatch(client, -1) == 1);
  CHECK(mp_after(client, 1 << 20, never, first_note) == 0 && mp_timeout(client) > 0);
  dprintf(fd, line, "timeout", "3.10");
  dprintf(fd, line, "timeout", "3.1");
  dprintf(fd, line, "closed", "3.1");
  /* The last word about a connection may come after its end. */
  dprintf(fd, line, "sub_closed", "3.1");
  dprintf(fd, line, "created", "3.1");
  dprintf(fd, line, "timeout", "3.1");
  close(fd);
  CHECK(mp_run(client) == 0 && notes_told == 6);
  CHECK(mp_timeout(client) == -1 && dropped == 0);
  mp_close(client);
  close_process(&played);
}

/* Lines that are not the protocol end the session with an error, and nothing else. */
static void hostile_lines(void) {
  const char *const lines[] = {"no JSON\n", "[1]\n", "{\"event\":\n", "\"\\ud800\"\n", "{\"event\":7,\"local\":9}\n", "\n"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    process played;
    open_process(&played);
    mp_client *client = mp_connect(played.path);
    CHECK(client);
    int fd = accept(played.listener, NULL, NULL);
    CHECK(write(fd, lines[i], strlen(lines[i])) > 0);
    close(fd);
    bool is_harmless = i >= 4;
    CHECK(mp_run(client) == (is_harmless ? 0 : -1) && (is_harmless || errno == EPROTO));
    mp_close(client);
    close_process(&played);
  }
}

/* What comes after a line that cannot be read is not lost. */
static void a_bad_line_is_told_once(void) {
  process played;
  open_process(&played);
  mp_client *client = mp_connect(played.path);
  int fd = accept(played.listener, NULL, NULL);
  dprintf(fd, "{\"window\":18446744073709541479}\n{\"id\":1,\"reply\":\"done\"}\n");
  CHECK(mp_subscribe(client, (const char *const[]){"timeout", NULL}, NULL, 0) == -1 && errno == EPROTO);
  dprintf(fd, "{\"id\":2,\"reply\":\"done\"}\n");
  CHECK(mp_subscribe(client, (const char *const[]){"timeout", NULL}, NULL, 0) == 0);
  close(fd);
  mp_close(client);
  close_process(&played);
}

/* A result that could be taken for a failure is one. */
static void a_number_that_there_cannot_be(void) {
  const char *const numbers[] = {"-7", "-1", "2147483648", "9223372036854775807"};
  process played;
  open_process(&played);
  mp_client *client = mp_connect(played.path);
  int fd = accept(played.listener, NULL, NULL);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    dprintf(fd, "{\"id\":%zu,\"reply\":\"done\",\"subflow\":%s,\"address_id\":%s}\n", i + 1, numbers[i], numbers[i]);
    errno = 0;
    int made = i % 2 ? mp_announce(client, "3.1", "10.1.0.1", 0) : mp_create(client, "3.1", NULL);
    CHECK(made == -1 && errno == EPROTO);
  }
  dprintf(fd, "{\"id\":5,\"reply\":\"done\",\"subflow\":7}\n");
  CHECK(mp_create(client, "3.1", NULL) == 7);
  close(fd);
  mp_close(client);
  close_process(&played);
}

/* A process that does not answer is not waited for for ever, and its late reply is none to the next request. */
static void a_process_that_does_not_answer(void) {
  process played;
  open_process(&played);
  mp_client *client = mp_connect(played.path);
  int fd = accept(played.listener, NULL, NULL);
  mp_set_timeout(client, 50);
  dprintf(fd, "{\"event");
  CHECK(mp_create(client, "3.1", NULL) == -1 && errno == ETIMEDOUT);
  dprintf(fd, "\":\"timeout\",\"seq\":1,\"at_us\":1}\n{\"id\":1,\"reply\":\"done\",\"subflow\":1}\n");
  dprintf(fd, "{\"id\":2,\"reply\":\"done\",\"subflow\":2}\n");
  mp_set_timeout(client, 10000);
  CHECK(mp_create(client, "3.1", NULL) == 2);
  CHECK(mp_dispatch(client, 0) == 1);
  close(fd);
  mp_close(client);
  close_process(&played);
}

/* What is small when it is written, and large when it is read, is refused before that. */
static void a_line_that_grows(void) {
  process played;
  open_process(&played);
  mp_client *client = mp_connect(played.path);
  int fd = accept(played.listener, NULL, NULL);
  pid_t writer = fork();
  CHECK(writer >= 0);
  if (writer == 0) {
    char chunk[3 * 1000];
    for (size_t i = 0; i < sizeof chunk; i += 3) memcpy(chunk + i, "{},", 3);
    dprintf(fd, "{\"id\":1,\"reply\":\"process\",\"process\":{\"connections\":[");
    for (int i = 0; i < 8000; i++)
      for (size_t done = 0; done < sizeof chunk;) {
        ssize_t sent = write(fd, chunk + done, sizeof chunk - done);
        if (sent < 0) _exit(1);
        done += (size_t)sent;
      }
    dprintf(fd, "{}]}}\n");
    _exit(0);
  }
  CHECK(mp_each(client, on_connection, NULL) == -1 && errno == EPROTO);
  CHECK(waitpid(writer, NULL, 0) == writer);
  close(fd);
  mp_close(client);
  close_process(&played);
}

static void nobody_there(void) {
  CHECK(!mp_connect("/nowhere/7.sock") && errno == ENOENT);
  CHECK(!mp_connect("seven") && errno == EINVAL);
  CHECK(!mp_connect("0") && errno == ENOENT);
  mp_close(NULL);
  mp_connection_free(NULL);
}

int main(void) {
  requests_and_events();
  notes_end_with_their_connection();
  hostile_lines();
  a_bad_line_is_told_once();
  a_number_that_there_cannot_be();
  a_process_that_does_not_answer();
  a_line_that_grows();
  nobody_there();
  puts("ok");
  return 0;
}
