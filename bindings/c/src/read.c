#include "read.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

const char *mp_read_text(const json_t *object, const char *name) {
  const char *text = json_string_value(json_object_get(object, name));
  return text ? text : "";
}

int64_t mp_read_number(const json_t *object, const char *name, int64_t none) {
  const json_t *value = json_object_get(object, name);
  return json_is_integer(value) ? json_integer_value(value) : none;
}

/* What does not fit an int is none that this protocol knows. */
static int small(const json_t *object, const char *name, int none) {
  int64_t value = mp_read_number(object, name, none);
  return value < INT_MIN || value > INT_MAX ? none : (int)value;
}

static int64_t number(const json_t *object, const char *name) { return mp_read_number(object, name, -1); }

static bool flag(const json_t *object, const char *name) { return json_is_true(json_object_get(object, name)); }

/* "10.0.0.1:80" or "[2001:db8::1]:80" in its parts. */
static mp_end end(const json_t *object, const char *name) {
  mp_end out = {.address = "", .port = 0};
  const char *text = mp_read_text(object, name);
  const char *colon = strrchr(text, ':');
  if (!colon) return out;
  size_t length = (size_t)(colon - text);
  if (length >= 2 && text[0] == '[' && colon[-1] == ']') {
    text += 1;
    length -= 2;
  }
  if (length >= sizeof out.address) return out;
  memcpy(out.address, text, length);
  out.port = (uint16_t)strtoul(colon + 1, NULL, 10);
  return out;
}

static mp_address address(const json_t *json) {
  return (mp_address){
      .id = small(json, "id", 0),
      .iface = mp_read_text(json, "iface"),
      .address = mp_read_text(json, "address"),
      .backup = flag(json, "backup"),
      .up = flag(json, "up"),
      .announced = flag(json, "announced"),
  };
}

static mp_subflow subflow(const json_t *json) {
  const char *phase = mp_read_text(json, "phase");
  return (mp_subflow){
      .id = small(json, "id", 0),
      .iface = mp_read_text(json, "iface"),
      .local = end(json, "local"),
      .remote = end(json, "remote"),
      .local_id = small(json, "local_id", 0),
      .remote_id = small(json, "remote_id", 0),
      .origin = mp_read_text(json, "origin"),
      .phase = phase,
      .tcp_state = mp_read_text(json, "tcp_state"),
      .established = strcmp(phase, "established") == 0,
      .backup_here = flag(json, "backup_here"),
      .backup_there = flag(json, "backup_there"),
      .stale = flag(json, "stale"),
      .age = number(json, "age_us"),
      .srtt = number(json, "srtt_us"),
      .min_rtt = number(json, "min_rtt_us"),
      .rto = number(json, "rto_us"),
      .backoffs = small(json, "backoffs", 0),
      .cwnd = number(json, "cwnd"),
      .ssthresh = number(json, "ssthresh"),
      .pacing_rate = number(json, "pacing_rate"),
      .delivery_rate = number(json, "delivery_rate"),
      .inflight = number(json, "inflight"),
      .mss = number(json, "mss"),
      .bytes_sent = number(json, "bytes_sent"),
      .bytes_acked = number(json, "bytes_acked"),
      .bytes_received = number(json, "bytes_received"),
      .bytes_retransmitted = number(json, "bytes_retransmitted"),
      .bytes_reinjected = number(json, "bytes_reinjected"),
      .retransmissions = number(json, "retransmissions"),
      .timeouts = number(json, "timeouts"),
  };
}

bool mp_read_connection(json_t *json, mp_owned *out) {
  const json_t *addresses = json_object_get(json, "local_addresses");
  const json_t *subflows = json_object_get(json, "subflows");
  size_t address_count = json_array_size(addresses), subflow_count = json_array_size(subflows);
  /* One more than needed, so that none is not taken for a failure. */
  mp_address *address_list = calloc(address_count + 1, sizeof *address_list);
  mp_subflow *subflow_list = calloc(subflow_count + 1, sizeof *subflow_list);
  if (!address_list || !subflow_list) {
    free(address_list);
    free(subflow_list);
    return false;
  }
  for (size_t i = 0; i < address_count; i++) address_list[i] = address(json_array_get(addresses, i));
  for (size_t i = 0; i < subflow_count; i++) subflow_list[i] = subflow(json_array_get(subflows, i));
  out->json = json_incref(json);
  out->shown = (mp_connection){
      .id = mp_read_text(json, "id"),
      .role = mp_read_text(json, "role"),
      .state = mp_read_text(json, "state"),
      .level = mp_read_text(json, "level"),
      .token = mp_read_text(json, "token"),
      .scheduler = mp_read_text(json, "scheduler"),
      .congestion = mp_read_text(json, "congestion"),
      .path_manager = mp_read_text(json, "path_manager"),
      .local = end(json, "local"),
      .remote = end(json, "remote"),
      .age = number(json, "age_us"),
      .bytes_written = number(json, "bytes_written"),
      .bytes_acked = number(json, "bytes_acked"),
      .bytes_received = number(json, "bytes_received"),
      .bytes_read = number(json, "bytes_read"),
      .bytes_reinjected = number(json, "bytes_reinjected"),
      .send_queue = number(json, "send_queue"),
      .recv_queue = number(json, "recv_queue"),
      .peer_window = number(json, "peer_window"),
      .may_join = flag(json, "may_join"),
      .may_create = flag(json, "may_create"),
      .held_up_by = small(json, "held_up_by", -1),
      .address_count = address_count,
      .subflow_count = subflow_count,
      .addresses = address_list,
      .subflows = subflow_list,
  };
  return true;
}

void mp_forget_connection(mp_owned *owned) {
  free((void *)owned->shown.addresses);
  free((void *)owned->shown.subflows);
  json_decref(owned->json);
}

void mp_read_event(const json_t *json, const mp_connection *sample, mp_event *out) {
  const json_t *transient = json_object_get(json, "transient");
  *out = (mp_event){
      .event = mp_read_text(json, "event"),
      .seq = number(json, "seq"),
      .at = number(json, "at_us"),
      .connection = mp_read_text(json, "connection"),
      .subflow = small(json, "subflow", -1),
      .local = end(json, "local"),
      .remote = end(json, "remote"),
      .local_id = small(json, "local_id", -1),
      .remote_id = small(json, "remote_id", -1),
      .backup = flag(json, "backup"),
      .server_side = flag(json, "server_side"),
      .origin = mp_read_text(json, "origin"),
      .cause = mp_read_text(json, "cause"),
      .error = small(json, "error", 0),
      .reset_reason = small(json, "reset_reason", -1),
      .transient = json_is_boolean(transient) ? json_is_true(transient) : -1,
      .rto = number(json, "rto_us"),
      .backoffs = small(json, "backoffs", 0),
      .address = mp_read_text(json, "address"),
      .decision = mp_read_text(json, "decision"),
      .reason = mp_read_text(json, "reason"),
      .sample = sample,
      .lost_samples = mp_read_number(json, "samples", 0),
      .lost_events = mp_read_number(json, "events", 0),
  };
}
