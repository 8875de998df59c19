/* Both libraries' ABI without an allocator behind it. Calls are lines of $FAKE_LOG; the environment decides what it claims:
 * FAKE_ABI, FAKE_BUILT_FOR, FAKE_HAS_CUDA, FAKE_ERROR (installing fails with these words); FAKE_SLEEPS=1 (a device has
 * bytes that sleep), FAKE_SLEEP_WHILE (it takes as long as that file is there), FAKE_SLEEP_ERROR (so it fails, and a part
 * of it sleeps). */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

static const char* Env(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value != NULL ? value : otherwise;
}

static void Log(const char* text) {
  const char* path = getenv("FAKE_LOG");
  FILE* file = path != NULL ? fopen(path, "a") : NULL;
  if (file == NULL) return;
  fprintf(file, "%s\n", text);
  fclose(file);
}

static int Outcome(const char* what, const char* detail) {
  char line[512];
  snprintf(line, sizeof(line), "%s %s", what, detail);
  Log(line);
  return getenv("FAKE_ERROR") != NULL ? 1 : 0;
}

API int stalloc_abi_version(void) { return atoi(Env("FAKE_ABI", "8")); }
API const char* stalloc_version(void) { return "9.9.9"; }
API int stalloc_init(void) { return Outcome("init", ""); }
API const char* stalloc_last_error(void) { return Env("FAKE_ERROR", Env("FAKE_SLEEP_ERROR", "")); }
API void* stalloc_malloc(ssize_t bytes, int device, void* stream) { return malloc((size_t)bytes); }
API void stalloc_free(void* pointer, ssize_t bytes, int device, void* stream) { free(pointer); }
API void stalloc_record_stream(void* pointer, void* stream) {}
API void stalloc_mark(int kind, int edge, int pass, int chunk, int index, const char* name, int automatic) {
  char line[512];
  snprintf(line, sizeof(line), "mark %d %d %d %d %d %s %d", kind, edge, pass, chunk, index, name ? name : "-", automatic);
  Log(line);
}
API size_t stalloc_stats_json(char* buffer, size_t capacity) {
  const char* text = "{\"mode\": \"Alloc\", \"degraded\": null, \"devices\": [{\"requests\": 10, \"planned_hits\": 9, "
                     "\"peak_live_bytes\": 2147483648, \"held_peak_bytes\": 4294967296}]}";
  if (strlen(text) < capacity) memcpy(buffer, text, strlen(text) + 1);
  return strlen(text);
}
API int stalloc_flush(void) { return Outcome("flush", ""); }
API int stalloc_stop_trace(void) { return Outcome("stop_trace", ""); }
API int stalloc_start_trace(void) { return Outcome("start_trace", ""); }
API int stalloc_take_plan(const char* path) { return Outcome("take_plan", path); }
API int stalloc_prepare_plan(const char* path) { return Outcome("prepare_plan", path); }
API int stalloc_trace_again(const char* path) { return Outcome("trace_again", path); }
API size_t stalloc_signature_json(char* buffer, size_t capacity) {
  if (capacity > 2) memcpy(buffer, "{}", 3);
  return 2;
}
API void stalloc_drop_plan(void) { (void)Outcome("drop_plan", ""); }
API void stalloc_move_run(const char* directory) { (void)Outcome("move_run", directory); }
/* All of a device is four bytes, a region one. */
static int asleep = 0;

/* A call that names no region at all asks what sleeps, and is no line of the log. */
API int stalloc_sleep(int device, const char* const* tags, size_t tag_count, const char* const* keep, size_t keep_count) {
  char line[64];
  if (tags != NULL && tag_count == 0) return 0;
  snprintf(line, sizeof(line), "%d %d %d", device, tags ? (int)tag_count : -1, keep ? (int)keep_count : -1);
  const int failed = Outcome("sleep", line);
  while (access(Env("FAKE_SLEEP_WHILE", ""), F_OK) == 0) usleep(10000);
  asleep = tags == NULL ? 4 : asleep + (int)tag_count;
  if (getenv("FAKE_SLEEP_ERROR") != NULL) {
    asleep = 1;
    return 1;
  }
  return failed;
}
API int stalloc_wake(int device, const char* const* tags, size_t tag_count) {
  char line[64];
  snprintf(line, sizeof(line), "%d %d", device, tags ? (int)tag_count : -1);
  const int failed = Outcome("wake", line);
  asleep = tags == NULL || asleep < (int)tag_count ? 0 : asleep - (int)tag_count;
  return failed;
}
API size_t stalloc_sleep_json(char* buffer, size_t capacity) {
  char text[512];
  snprintf(text, sizeof(text),
           "{\"devices\": [{\"device\": -1, \"blocks\": 1, \"kept_bytes\": 1, \"dropped_bytes\": 0, \"copied_bytes\": 1, "
           "\"copies\": 1, \"given_back_bytes\": 1, \"asleep_bytes\": %d, \"arena_bytes\": 0, "
           "\"upstream_reserved_bytes\": 0, \"upstream_live_bytes\": 0, \"host_pool_bytes\": 0, \"pool_seconds\": 0, "
           "\"seconds\": 0}]}",
           asleep);
  if (getenv("FAKE_SLEEPS") == NULL) strcpy(text, "{\"devices\": []}");
  if (strlen(text) < capacity) memcpy(buffer, text, strlen(text) + 1);
  return strlen(text);
}
API int stalloc_region_tag(const char* name, int keep) { return 1; }
API int stalloc_enter_region(int tag) { return 0; }
API int stalloc_read_asleep(const void* address, uint64_t bytes, void* to) { return 1; }
API int stalloc_reserve_host_pool(int device, uint64_t bytes) { return Outcome("reserve_host_pool", ""); }
API uint64_t stalloc_release_host_pools(void) { return 0; }
API int64_t stalloc_text(const char* text) {
  static int64_t next = 0;
  (void)Outcome("text", text);
  return next++;
}
API void stalloc_layer_input(const void* block, int64_t text) {}
API void stalloc_name_tensor(const void* block, uint64_t offset, uint64_t bytes, int role, int64_t text) {
  char line[128];
  snprintf(line, sizeof(line), "name_tensor %llu %llu %d %lld", (unsigned long long)offset, (unsigned long long)bytes, role,
           (long long)text);
  Log(line);
}

API void stalloc_silence(void) { Log("silence"); }
API void stalloc_tell_oom_reports(void (*told)(const char*)) { (void)told; }

API const char* stalloc_torch_interface(void) {
  return "stalloc adapter for torch 2.11.0, interface 0000000000000000000000000000000000000000000000000000000000000000";
}
API const char* stalloc_graph_error(void) { return ""; }
API size_t stalloc_uncounted_json(char* buffer, size_t capacity) {
  return (size_t)snprintf(buffer, capacity, "{\"devices\":[]}");
}
API size_t stalloc_graphs_json(char* buffer, size_t capacity) {
  if (buffer != NULL && capacity > 2) strcpy(buffer, "{}");
  return 2;
}
API const char* stalloc_torch_built_for(void) { return Env("FAKE_BUILT_FOR", "2.11.0"); }
API int stalloc_torch_has_cuda(void) { return atoi(Env("FAKE_HAS_CUDA", "1")); }
API int stalloc_torch_install_cuda(const char* running) { return Outcome("install cuda", running); }
API int stalloc_torch_install_cpu(const char* running) { return Outcome("install cpu", running); }
API int stalloc_torch_install_fake(const char* running, int device) { return Outcome("install fake", running); }
API void* stalloc_torch_fake_allocate(size_t bytes, unsigned long long stream) { return (void*)bytes; }
API void stalloc_torch_fake_record_stream(void* block, unsigned long long stream) {}
API void stalloc_torch_fake_free(void* block) {}
