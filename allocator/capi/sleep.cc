// The part of stalloc.h that is about sleep and wake.
#include <cstring>

#include "allocator/capi/global_session.h"
#include "allocator/capi/guarded.h"
#include "allocator/capi/stalloc.h"
#include "allocator/runtime/sleep_json.h"
#include "allocator/runtime/sleep_tags.h"

namespace {

using stalloc::Guarded;

std::string& LastFigures() {
  static thread_local std::string figures = "{}";
  return figures;
}

stalloc::TagNames NamesOf(const char* const* names, std::size_t count) {
  if (names == nullptr) return std::nullopt;
  return std::vector<std::string>(names, names + count);
}

std::optional<stalloc::DeviceIndex> DeviceOf(int device) {
  return device == STALLOC_ALL_DEVICES ? std::nullopt : std::optional<stalloc::DeviceIndex>(device);
}

// call(session) gives figures of devices.
template <typename Call>
int WithFigures(Call&& call) {
  return Guarded([&]() -> stalloc::Status {
    stalloc::Session* const session = stalloc::GlobalSession();
    if (session == nullptr) return stalloc::Error{"stalloc is not installed, so there is no arena"};
    const auto figures = call(*session);
    if (!figures.ok()) return stalloc::Error{figures.error()};
    LastFigures() = stalloc::SleepToJson(figures.value());
    return stalloc::Ok{};
  });
}

}  // namespace

extern "C" {

int stalloc_sleep(int device, const char* const* tags, size_t tag_count, const char* const* keep, size_t keep_count) {
  return WithFigures([&](stalloc::Session& session) {
    return session.Sleep(DeviceOf(device), {.tags = NamesOf(tags, tag_count), .keep = NamesOf(keep, keep_count)});
  });
}

int stalloc_wake(int device, const char* const* tags, size_t tag_count) {
  return WithFigures(
      [&](stalloc::Session& session) { return session.Wake(DeviceOf(device), NamesOf(tags, tag_count)); });
}

size_t stalloc_sleep_json(char* buffer, size_t capacity) {
  const std::string& figures = LastFigures();
  if (buffer != nullptr && capacity > figures.size()) std::memcpy(buffer, figures.c_str(), figures.size() + 1);
  return figures.size();
}

int stalloc_region_tag(const char* name, int keep) {
  int number = -1;
  (void)Guarded([&]() -> stalloc::Status {
    if (name == nullptr || *name == '\0') return stalloc::Error{"a region's tag must have a name"};
    const std::optional<unsigned> tag = stalloc::SleepTags::Number(name, keep != 0);
    if (!tag.has_value()) return stalloc::Error{"there are as many region tags as there can be (127)"};
    number = static_cast<int>(*tag);
    return stalloc::Ok{};
  });
  return number;
}

int stalloc_enter_region(int tag) {
  using stalloc::SleepTags;
  const bool is_known = tag >= 0 && static_cast<std::size_t>(tag) < SleepTags::All().size();
  const unsigned otherwise = tag == STALLOC_OUTSIDE ? SleepTags::kOutside : 0;
  const unsigned before = SleepTags::Enter(is_known ? static_cast<unsigned>(tag) : otherwise);
  return before == SleepTags::kOutside ? STALLOC_OUTSIDE : static_cast<int>(before);
}

int stalloc_read_asleep(const void* address, uint64_t bytes, void* to) {
  return Guarded([&]() -> stalloc::Status {
    const stalloc::Session* const session = stalloc::GlobalSession();
    if (session == nullptr) return stalloc::Error{"stalloc is not installed, so there is no arena"};
    return session->ReadAsleep(address, bytes, to);
  });
}

int stalloc_reserve_host_pool(int device, uint64_t bytes) {
  return Guarded([&]() -> stalloc::Status {
    stalloc::Session* const session = stalloc::GlobalSession();
    if (session == nullptr) return stalloc::Error{"stalloc is not installed, so there is no arena"};
    return session->ReserveHostPool(DeviceOf(device), bytes);
  });
}

uint64_t stalloc_release_host_pools(void) {
  stalloc::Session* const session = stalloc::GlobalSession();
  std::uint64_t bytes = 0;
  (void)Guarded([&]() -> stalloc::Status {
    if (session != nullptr) bytes = session->ReleaseHostPools();
    return stalloc::Ok{};
  });
  return bytes;
}

}  // extern "C"
