#include "allocator/base/alike.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>

namespace stalloc {
namespace {

constexpr std::size_t kMostKinds = 32;  // a descriptor each

struct Said {
  std::atomic<std::uint64_t> kind{0};  // 0: free
  std::atomic<bool> by_other{false};
};

std::array<Said, kMostKinds> said;

bool TakesName(std::uint64_t launch, std::uint64_t kind) noexcept {
  const int holder = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (holder < 0) return true;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "stalloc-line-%u-%llx-%llx",
                                   static_cast<unsigned>(getuid()), static_cast<unsigned long long>(launch),
                                   static_cast<unsigned long long>(kind));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  if (bind(holder, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return true;  // until the process ends
  const bool taken = errno == EADDRINUSE;
  close(holder);
  return !taken;
}

}  // namespace

std::uint64_t KindOfLine(const char* text, std::size_t length) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  bool in_number = false;
  for (std::size_t i = 0; i < length; ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (digit && in_number) continue;
    in_number = digit;
    hash = (hash ^ static_cast<unsigned char>(digit ? '#' : text[i])) * 0x100000001b3u;
  }
  return hash != 0 ? hash : 1;
}

bool SaysFirst(std::uint64_t launch, std::uint64_t kind) noexcept {
  for (Said& one : said) {
    std::uint64_t found = 0;
    if (one.kind.compare_exchange_strong(found, kind)) {
      const bool first = TakesName(launch, kind);
      one.by_other.store(!first);
      return first;
    }
    if (found == kind) return !one.by_other.load();
  }
  return true;
}

}  // namespace stalloc
