#include "tests/runtime/queued_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/model/units.h"

namespace stalloc {
namespace {

constexpr std::size_t kMostQueued = 4096;  // operations, of all streams
constexpr int kInATurn = 24;               // operations that run without a look around
constexpr StreamHandle kCopies = 0xc0b1e5;
constexpr std::size_t kPatience = 64;  // so little work may wait for more

}  // namespace

QueuedDevice::QueuedDevice(VmmDriver& driver, std::uint64_t seed, Habits habits)
    : ForwardingDriver(driver), habits_(habits), page_(driver.Granularity()), random_(seed) {
  worker_ = std::thread([this] { Work(); });
}

QueuedDevice::~QueuedDevice() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  work_.notify_all();
  worker_.join();
}

// The host ------------------------------------------------------------------------------------------------------------

std::size_t QueuedDevice::IndexOf(StreamHandle stream) {
  if (stream == kLegacyDefaultStreamToo) stream = kLegacyDefaultStream;
  const std::thread::id owner = stream == kPerThreadDefaultStream ? std::this_thread::get_id() : std::thread::id();
  const auto [found, is_new] = names_.try_emplace({stream, owner}, streams_.size());
  if (is_new) streams_.emplace_back().of_other = IsOfOtherDevice(stream);
  return found->second;
}

// The per-thread stream stands for those of all threads.
std::vector<QueuedDevice::Point> QueuedDevice::PointsOf(StreamHandle stream) {
  (void)IndexOf(stream);
  std::vector<Point> points;
  for (const auto& [name, index] : names_) {
    if (name.first == stream) points.push_back({index, streams_[index].given});
  }
  return points;
}

bool QueuedDevice::IsOver(const std::vector<Point>& points) const {
  return std::all_of(points.begin(), points.end(),
                     [this](const Point& point) { return streams_[point.stream].done >= point.position; });
}

void QueuedDevice::Give(std::unique_lock<std::mutex>& lock, std::size_t stream, Operation operation) {
  ++waiting_;
  if (queued_ >= kMostQueued) work_.notify_one();
  progress_.wait(lock, [this] { return queued_ < kMostQueued; });
  --waiting_;
  if (!streams_[stream].of_other && !IsOver(behind_))
    operation.behind.insert(operation.behind.end(), behind_.begin(), behind_.end());
  streams_[stream].queue.push_back(std::move(operation));
  ++streams_[stream].given;
  if (++queued_ % kPatience == 0) work_.notify_one();
}

void QueuedDevice::Launch(StreamHandle stream, const Kernel& kernel) {
  std::unique_lock lock(mutex_);
  Give(lock, IndexOf(stream), {.kernel = kernel, .behind = {}});
}

void QueuedDevice::Copy(Address address, std::byte* host, Bytes bytes, bool to_host) {
  std::unique_lock lock(mutex_);
  Give(lock, IndexOf(kCopies), {.kernel = {address, bytes}, .host = host, .to_host = to_host, .behind = {}});
}

std::uint64_t QueuedDevice::copies_given() {
  const std::lock_guard lock(mutex_);
  return streams_[IndexOf(kCopies)].given;
}

void QueuedDevice::AwaitCopies(std::uint64_t count) {
  std::unique_lock lock(mutex_);
  const std::vector<Point> copies{{IndexOf(kCopies), count}};
  if (!habits_.forgets_copies) AwaitLocked(lock, copies);
}

void QueuedDevice::AwaitLocked(std::unique_lock<std::mutex>& lock, const std::vector<Point>& points) {
  ++waiting_;
  work_.notify_one();
  progress_.wait(lock, [&] { return IsOver(points); });
  --waiting_;
}

void QueuedDevice::PutBehindCopies() {
  std::unique_lock lock(mutex_);
  if (habits_.ignores_copies) return;
  behind_ = PointsOf(kCopies);
  if (!AllPoints(/*of_others=*/true).empty()) AwaitLocked(lock, std::vector(behind_));
}

void QueuedDevice::OrderBehind(StreamHandle stream, StreamHandle behind) {
  std::unique_lock lock(mutex_);
  std::vector<Point> points = PointsOf(behind);
  Give(lock, IndexOf(stream), {.kernel = {}, .behind = std::move(points)});
}

void QueuedDevice::BeginCapture(StreamHandle stream) {
  captures_.CaptureBegins();
  const std::lock_guard lock(mutex_);
  streams_[IndexOf(stream)].captured = true;
}

void QueuedDevice::EndCapture(StreamHandle stream) {
  {
    const std::lock_guard lock(mutex_);
    streams_[IndexOf(stream)].captured = false;
  }
  captures_.CaptureEnds();
}

StreamFence::Event QueuedDevice::Record(StreamHandle stream) noexcept {
  const std::lock_guard lock(mutex_);
  if (streams_[IndexOf(stream)].captured || Happens(habits_.refuses)) return 0;
  events_[++last_event_] = PointsOf(stream);
  return last_event_;
}

// As CudaEvents and CudaDriver, which pass the gate as well.
StreamFence::Event QueuedDevice::RecordAll() noexcept {
  const CaptureGate::Passage passage(&captures_);
  if (!passage && !habits_.ignores_captures) return 0;
  const std::lock_guard lock(mutex_);
  BreakCaptures();
  if (Happens(habits_.refuses)) return 0;
  events_[++last_event_] = AllPoints(/*of_others=*/false);
  return last_event_;
}

std::vector<QueuedDevice::Point> QueuedDevice::AllPoints(bool of_others) const {
  std::vector<Point> all;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].of_other == of_others) all.push_back({i, streams_[i].given});
  }
  return all;
}

void QueuedDevice::BreakCaptures() {
  for (const Stream& stream : streams_) {
    if (stream.captured) Find(&findings_.broken, "a capture was broken");
  }
}

bool QueuedDevice::Wait(StreamHandle stream, Event event) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) {
    Find(&findings_.events, "a stream was to wait for an event that was recycled");
    return false;
  }
  const std::size_t index = IndexOf(stream);
  if (streams_[index].captured || Happens(habits_.refuses)) return false;
  if (!habits_.waits_do_nothing) Give(lock, index, {.kernel = {}, .behind = std::vector<Point>(found->second)});
  return true;
}

bool QueuedDevice::Done(Event event) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) Find(&findings_.events, "an event was asked after it was recycled");
  return found != events_.end() && (habits_.done_lies || IsOver(found->second));
}

bool QueuedDevice::Await(Event event) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = events_.find(event);
  if (found == events_.end()) {
    Find(&findings_.events, "an event was waited for after it was recycled");
    return false;
  }
  if (!habits_.done_lies) AwaitLocked(lock, std::vector(found->second));
  return true;
}

void QueuedDevice::Recycle(Event event) noexcept {
  const std::lock_guard lock(mutex_);
  if (events_.erase(event) == 0) Find(&findings_.events, "an event was recycled twice");
}

DriverStatus QueuedDevice::Synchronize() noexcept {
  const CaptureGate::Passage passage(&captures_);
  if (!passage && !habits_.ignores_captures) return {DriverCode::kFailed, 900, "Synchronize"};
  std::unique_lock lock(mutex_);
  BreakCaptures();
  if (!habits_.never_synchronizes) AwaitLocked(lock, AllPoints(/*of_others=*/false));
  return {};
}

DriverStatus QueuedDevice::SynchronizeOthers() noexcept {
  const CaptureGate::Passage passage(&captures_);
  if (!passage && !habits_.ignores_captures) return {DriverCode::kFailed, 900, "Synchronize"};
  std::unique_lock lock(mutex_);
  BreakCaptures();
  if (!habits_.ignores_others) AwaitLocked(lock, AllPoints(/*of_others=*/true));
  return {};
}

// Memory --------------------------------------------------------------------------------------------------------------

std::uint8_t* QueuedDevice::PageOf(Address address) {
  auto reservation = usable_.upper_bound(address);
  if (reservation == usable_.begin()) return nullptr;
  --reservation;
  const auto page = static_cast<std::size_t>((address - reservation->first) / page_);
  return page < reservation->second.size() ? &reservation->second[page] : nullptr;
}

DriverStatus QueuedDevice::Reserve(Bytes bytes, Address* address) noexcept {
  const std::lock_guard lock(mutex_);
  const DriverStatus status = ForwardingDriver::Reserve(bytes, address);
  if (status.ok()) usable_[*address].assign(static_cast<std::size_t>(bytes / page_), 0);
  return status;
}

// Its addresses may be another reservation's, or a part of one, at once.
DriverStatus QueuedDevice::ReleaseReservation(Address address, Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const DriverStatus status = ForwardingDriver::ReleaseReservation(address, bytes);
  if (status.ok()) usable_.erase(address);
  return status;
}

// No kernel runs meanwhile.
DriverStatus QueuedDevice::Unmap(Address address, Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  FindQueuedIn(address, bytes);
  const DriverStatus status = ForwardingDriver::Unmap(address, bytes);
  if (status.ok()) std::fill_n(PageOf(address), bytes / page_, std::uint8_t{0});
  return status;
}

// It is found now: when the work runs, other memory may be there.
void QueuedDevice::FindQueuedIn(Address address, Bytes bytes) {
  for (const Stream& stream : streams_) {
    for (const Operation& queued : stream.queue) {
      const Kernel& kernel = queued.kernel;
      if (kernel.address >= address + bytes || kernel.address + kernel.bytes <= address) continue;
      const bool copies = queued.host != nullptr;
      const char* const what =
          copies ? (queued.to_host ? "unmapped before a copy to the host" : "unmapped before a copy to the device")
                 : "unmapped before its kernel";
      Find(&findings_.unmapped, what, kernel, std::max(kernel.address, address) - kernel.address);
    }
  }
}

DriverStatus QueuedDevice::SetAccess(Address address, Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const DriverStatus status = ForwardingDriver::SetAccess(address, bytes);
  if (status.ok()) std::fill_n(PageOf(address), bytes / page_, std::uint8_t{1});
  return status;
}

DriverStatus QueuedDevice::Fill(Address address, Bytes bytes, unsigned char value, StreamHandle stream) noexcept {
  std::unique_lock lock(mutex_);
  const std::function<bool(Address, Bytes)> may_fill = may_fill_;
  lock.unlock();
  if (may_fill != nullptr && !may_fill(address, bytes)) return {DriverCode::kFailed, 719, "Fill"};
  lock.lock();
  Give(lock, IndexOf(stream), {.kernel = {address, bytes}, .fill = value, .behind = {}});
  return {};
}

void QueuedDevice::OnFill(std::function<bool(Address, Bytes)> may_fill) {
  const std::lock_guard lock(mutex_);
  may_fill_ = std::move(may_fill);
}

// The device ----------------------------------------------------------------------------------------------------------

void QueuedDevice::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stops_ || (queued_ > 0 && (waiting_ > 0 || queued_ >= kPatience)); });
    if (stops_ && queued_ == 0) return;
    const bool ran = RunSome();
    if (waiting_ > 0) progress_.notify_all();
    // The host goes first now and then, and where all that may run waits for what may not.
    if (!ran || random_() % 4 == 0) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

// From a stream that chance names; a slow one seldom gets its turn. False if there was nothing to run in it.
bool QueuedDevice::RunSome() {
  if (random_() % 64 == 0) {
    for (Stream& stream : streams_) stream.slow = random_() % 3 == 0;
  }
  Stream& stream = streams_[random_() % streams_.size()];
  if (stream.slow && random_() % 16 != 0) return false;
  const auto most = 1 + static_cast<int>(random_() % kInATurn);
  for (int i = 0; i < most; ++i) {
    if (!RunNext(stream)) return i > 0;
  }
  return true;
}

bool QueuedDevice::RunNext(Stream& stream) {
  if (stream.queue.empty() || !IsOver(stream.queue.front().behind)) return false;
  const Operation operation = std::move(stream.queue.front());
  const Kernel& kernel = operation.kernel;
  stream.queue.pop_front();
  ++stream.done;
  --queued_;
  ++operations_;
  if (operation.host != nullptr) RunCopy(operation);
  if (operation.fill.has_value()) RunFill(kernel, *operation.fill);
  if (kernel.writes != 0) Run(kernel);
  return true;
}

void QueuedDevice::RunCopy(const Operation& copy) {
  const auto [address, bytes, expects, writes] = copy.kernel;
  for (Bytes at = 0; at < bytes; at += kBlockAlignment) {
    const std::uint8_t* const page = PageOf(address + at);
    if (page == nullptr || *page == 0)
      return Find(&findings_.unmapped,
                  copy.to_host ? "not mapped for a copy to the host" : "not mapped for a copy to the device",
                  copy.kernel, at);
  }
  auto* const device = reinterpret_cast<std::byte*>(address);
  std::memcpy(copy.to_host ? copy.host : device, copy.to_host ? device : copy.host, bytes);
}

void QueuedDevice::RunFill(const Kernel& range, unsigned char value) {
  for (Bytes at = 0; at < range.bytes; at += kBlockAlignment) {
    const std::uint8_t* const page = PageOf(range.address + at);
    if (page == nullptr || *page == 0) return Find(&findings_.unmapped, "not mapped for a fill", range, at);
  }
  std::memset(reinterpret_cast<void*>(range.address), value, range.bytes);
}

void QueuedDevice::Run(const Kernel& kernel) {
  for (Bytes at = 0; at < kernel.bytes; at += kBlockAlignment) {
    const std::uint8_t* const page = PageOf(kernel.address + at);
    if (page == nullptr || *page == 0) return Find(&findings_.unmapped, "not mapped", kernel, at);
    auto* const word = reinterpret_cast<std::uint64_t*>(kernel.address + at);
    if (kernel.expects != 0 && *word != kernel.expects + at) return Find(&findings_.damaged, "not its own", kernel, at);
    *word = kernel.writes + at;
  }
}

void QueuedDevice::Find(std::uint64_t* kind, const char* what, const Kernel& kernel, Bytes at) {
  Find(kind, std::string(what) + ": byte " + std::to_string(at) + " of the " + std::to_string(kernel.bytes) +
                 " that block " + std::to_string(kernel.writes >> 32) + " has, after " + std::to_string(operations_) +
                 " operations of the device");
}

void QueuedDevice::Find(std::uint64_t* kind, const std::string& text) {
  if (findings_.count() == 0) findings_.first = text;
  ++*kind;
}

QueuedDevice::Findings QueuedDevice::GetFindings() const {
  const std::lock_guard lock(mutex_);
  return findings_;
}

std::uint64_t QueuedDevice::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

}  // namespace stalloc
