#define _GNU_SOURCE
#include "place.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A process that is stopped, and whose backlog is full, accepts nobody. */
#define CONNECT_SECONDS 30

static int open_socket(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  struct timeval patience = {.tv_sec = CONNECT_SECONDS};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
  int why = errno == EAGAIN ? ETIMEDOUT : errno;
  close(fd);
  errno = why;
  return -1;
}

/* Whether it is a socket of this user, and no link to one. */
static bool is_socket(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISSOCK(info.st_mode) && info.st_uid == getuid();
}

/* Only a folder that nobody else can write to is believed, and no link to one. */
static bool is_trusted(const char *folder) {
  struct stat info;
  return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == getuid() && !(info.st_mode & 077);
}

/* Whether a path is that of a process's socket, FOLDER/PID.sock, and of this process where one is given. */
static bool is_wanted(const char *path, const char *pid) {
  const char *name = strrchr(path, '/') + 1;
  size_t digits = strspn(name, "0123456789");
  if (digits == 0 || strcmp(name + digits, ".sock") != 0) return false;
  return !pid || (strlen(pid) == digits && strncmp(name, pid, digits) == 0);
}

/* The socket of a process that lives, in the folders that match. What a killed process left behind refuses. */
static void search(const char *folders, const char *pid, int *found, unsigned *count) {
  glob_t matches = {0};
  if (glob(folders, 0, NULL, &matches) != 0) return;
  for (size_t i = 0; i < matches.gl_pathc; i++) {
    char pattern[4096];
    if (!is_trusted(matches.gl_pathv[i])) continue;
    if (snprintf(pattern, sizeof pattern, "%s/*.sock", matches.gl_pathv[i]) >= (int)sizeof pattern) continue;
    glob_t sockets = {0};
    if (glob(pattern, 0, NULL, &sockets) != 0) continue;
    for (size_t n = 0; n < sockets.gl_pathc; n++) {
      int fd = is_wanted(sockets.gl_pathv[n], pid) && is_socket(sockets.gl_pathv[n]) ? open_socket(sockets.gl_pathv[n]) : -1;
      if (fd < 0) continue;
      *count += 1;
      if (*found < 0) *found = fd;
      else close(fd);
    }
    globfree(&sockets);
  }
  globfree(&matches);
}

int mp_place_connect(const char *who) {
  if (who && strchr(who, '/')) return open_socket(who);
  if (who && (!*who || strspn(who, "0123456789") != strlen(who))) {
    errno = EINVAL;
    return -1;
  }
  char folder[4096];
  int found = -1;
  unsigned count = 0;
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  snprintf(folder, sizeof folder, "/run/user/%u", (unsigned)getuid());
  if (runtime && strcmp(runtime, folder) != 0) {
    char named[4096];
    if (snprintf(named, sizeof named, "%s/manypath", runtime) < (int)sizeof named) search(named, who, &found, &count);
  }
  strcat(folder, "/manypath");
  search(folder, who, &found, &count);
  snprintf(folder, sizeof folder, "/run/manypath-%u", (unsigned)getuid());
  search(folder, who, &found, &count);
  snprintf(folder, sizeof folder, "/tmp/manypath-%u*", (unsigned)getuid());
  search(folder, who, &found, &count);
  if (count == 1 || (count > 1 && who)) return found;
  if (found >= 0) close(found);
  errno = count ? ENOTUNIQ : ENOENT;
  return -1;
}
