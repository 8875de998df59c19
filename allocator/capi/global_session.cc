#include "allocator/capi/global_session.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace stalloc {
namespace {

struct Global {
  std::atomic<Session*> session{nullptr};
  std::mutex mutex;
  bool decided = false;  // guarded by mutex
  std::string error;     // guarded by mutex; why there is no session
};

// Never destroyed: frees arrive until the process is gone.
Global& TheGlobal() {
  static Global* const global = new Global;
  return *global;
}

std::vector<std::string> CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> arguments;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\0', begin), bytes.size());
    arguments.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  return arguments;
}

Result<std::unique_ptr<Session>> Open(const Fingerprint& known) {
  Result<Config> config = ReadConfig(&ProcessEnvironment);
  if (!config.ok()) return Error{config.error()};
  Session::Environment environment{std::move(config).value(), known};
  if (environment.fingerprint.command_line.empty()) environment.fingerprint.command_line = CommandLine();
  return Session::Open(std::move(environment));
}

}  // namespace

Session* GlobalSession() noexcept { return TheGlobal().session.load(std::memory_order_acquire); }

Result<Session*> OpenGlobalSession(const Fingerprint& known) {
  Global& global = TheGlobal();
  if (Session* const session = GlobalSession(); session != nullptr) return session;
  const std::lock_guard lock(global.mutex);
  if (!global.decided) {
    global.decided = true;
    Result<std::unique_ptr<Session>> opened = Open(known);
    if (opened.ok()) {
      global.session.store(std::move(opened).value().release(), std::memory_order_release);
    } else {
      global.error = opened.error();
    }
  }
  if (Session* const session = GlobalSession(); session != nullptr) return session;
  return Error{global.error};
}

}  // namespace stalloc
