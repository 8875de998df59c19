#include "allocator/sleep/host_pool.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "allocator/driver/host_memory.h"

namespace stalloc {
namespace {

constexpr Bytes kSegmentUnit = Bytes{2} << 20;
constexpr std::size_t kMostThreads = 8;

// This one, and others as far as they can be had.
template <typename Work>
void OnThreads(std::size_t count, const Work& work) {
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < count) others.emplace_back(work);
  } catch (const std::exception&) {
  }
  work();
  for (std::thread& thread : others) thread.join();
}

std::string Mebibytes(Bytes bytes) { return std::to_string((bytes + (Bytes{1} << 20) - 1) >> 20).append(" MiB"); }

}  // namespace

HostPool::~HostPool() {
  for (const auto& [begin, segment] : segments_) copies_.GiveHostBack(segment.memory, segment.bytes);
}

Status HostPool::Reserve(Bytes bytes) {
  if (bytes <= free_bytes_) return Ok{};
  const Bytes missing = RoundUp(bytes - free_bytes_, kSegmentUnit);
  std::vector<Segment> taken;
  const DriverStatus status = TakeSegments(missing, &taken);
  if (!status.ok()) {
    return Error{"the host has no memory for the bytes that are to be kept: " + Mebibytes(missing) +
                 " of page-locked memory are needed in addition to " + Mebibytes(bytes_) + " that are held, " +
                 Mebibytes(AvailableHostBytes()) + " are available (" + status.call + " gave " +
                 std::to_string(status.native) + ")"};
  }
  for (Segment& segment : taken) {
    auto* const begin = static_cast<std::byte*>(segment.memory);
    segment.free = {{begin, segment.bytes}};
    segments_[begin] = std::move(segment);
  }
  bytes_ += missing;
  free_bytes_ += missing;
  return Ok{};
}

DriverStatus HostPool::TakeSegments(Bytes bytes, std::vector<Segment>* taken) const {
  if (bytes > AvailableHostBytes()) return {DriverCode::kOutOfMemory, ENOMEM, "mmap"};  // before half of it is taken
  std::vector<Segment> segments;
  for (Bytes at = 0; at < bytes; at += segment_) segments.push_back({nullptr, std::min(segment_, bytes - at), {}});
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  DriverStatus failure;  // the first; guarded by mutex
  OnThreads(std::min(segments.size(), kMostThreads), [&] {
    for (std::size_t i = next++; i < segments.size(); i = next++) {
      const DriverStatus status = copies_.TakeHost(segments[i].bytes, &segments[i].memory);
      if (status.ok()) continue;
      next = segments.size();
      segments[i].memory = nullptr;
      const std::lock_guard lock(mutex);
      if (failure.ok()) failure = status;
    }
  });
  if (failure.ok()) {
    *taken = std::move(segments);
    return failure;
  }
  for (const Segment& segment : segments) {
    if (segment.memory != nullptr) copies_.GiveHostBack(segment.memory, segment.bytes);
  }
  return failure;
}

Result<std::vector<HostPool::Piece>> HostPool::Take(Bytes bytes) {
  if (Status reserved = Reserve(bytes); !reserved.ok()) return Error{reserved.error()};
  std::vector<Piece> pieces;
  for (auto& [begin, segment] : segments_) {
    while (bytes > 0 && !segment.free.empty()) {
      const auto part = segment.free.begin();
      const Piece piece{part->first, std::min(part->second, bytes)};
      const Bytes left = part->second - piece.bytes;
      pieces.push_back(piece);
      segment.free.erase(part);
      if (left > 0) segment.free[piece.at + piece.bytes] = left;
      bytes -= piece.bytes;
      free_bytes_ -= piece.bytes;
    }
  }
  return pieces;
}

void HostPool::Give(const Piece& piece) {
  if (piece.bytes == 0) return;
  FreeParts& free = std::prev(segments_.upper_bound(piece.at))->second.free;
  auto part = free.emplace(piece.at, piece.bytes).first;
  free_bytes_ += piece.bytes;
  if (const auto next = std::next(part); next != free.end() && part->first + part->second == next->first) {
    part->second += next->second;
    free.erase(next);
  }
  if (part == free.begin()) return;
  const auto before = std::prev(part);
  if (before->first + before->second != part->first) return;
  before->second += part->second;
  free.erase(part);
}

Bytes HostPool::Release() noexcept {
  Bytes released = 0;
  std::erase_if(segments_, [&](const auto& entry) {
    const Segment& segment = entry.second;
    if (segment.free.empty() || segment.free.begin()->second != segment.bytes) return false;
    copies_.GiveHostBack(segment.memory, segment.bytes);
    released += segment.bytes;
    return true;
  });
  bytes_ -= released;
  free_bytes_ -= released;
  return released;
}

}  // namespace stalloc
