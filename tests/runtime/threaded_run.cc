#include "tests/runtime/threaded_run.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "allocator/runtime/planned_space.h"
#include "allocator/runtime/sleep_tags.h"

namespace stalloc {
namespace {

constexpr Bytes kPage = 4096;
constexpr int kIterations = 12;
constexpr std::uint64_t kKeyStep = std::uint64_t{1} << 32;  // a block's kernels write keys below its next one
constexpr StreamHandle kCapturedStream = 0x900;

constexpr const char* kRegion = "of the region";
unsigned RegionTag() { return *SleepTags::Number(kRegion, true); }

constexpr Divergence kFaithful{};
constexpr Divergence kSome{
    .inserted = 0.02, .dropped = 0.02, .resized = 0.02, .swapped = 0.02, .freed_late = 0.05, .freed_early = 0.02};
constexpr Divergence kMuch{
    .inserted = 0.2, .dropped = 0.2, .resized = 0.3, .swapped = 0.3, .freed_late = 0.2, .freed_early = 0.2};

}  // namespace

// Set-up --------------------------------------------------------------------------------------------------------------

ThreadedRun::Result ThreadedRun::Of(std::uint64_t seed, QueuedDevice::Habits habits) {
  return ThreadedRun(seed, habits).Run();
}

ThreadedRun::ThreadedRun(std::uint64_t seed, QueuedDevice::Habits habits)
    : random_(seed), stream_count_(1 + static_cast<int>(random_() % 6)), workers_(1 + random_() % 8) {
  for (int i = 0; i < stream_count_; ++i) streams_.push_back(i == 0 ? kLegacyDefaultStream : 0x100u + 16u * i);
  const Bytes largest = Bytes{1} << (12 + random_() % 5);
  const bool all_mark = Happens(random_, 0.5);
  std::vector<std::vector<CorpusAllocation>> programs;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.random.seed(random_());
    worker.stream = streams_[i % streams_.size()];
    worker.alone = workers_.size() <= streams_.size();
    worker.marks = i == 0 || all_mark;
    worker.program = RandomProgram(60 + random_() % 200, largest, random_);
    programs.push_back(worker.program);
  }
  if (Happens(random_, 0.2)) {  // the plan is another run's
    for (auto& program : programs) program = RandomProgram(60 + random_() % 200, largest, random_);
  }
  plan_ = MakePlan(programs);
  if (Happens(random_, 0.5)) AddTurns();
  full_ = Happens(random_, 0.5);
  peers_ = Happens(random_, 0.5);
  switches_ = seed % 3 == 0 ? 2 : 0;
  const Bytes arena = RoundUp(plan_.arena_bytes, kPage);
  host_ = HostDriver::Create({.capacity = full_ ? arena : 2 * arena, .granularity = kPage});
  device_ = std::make_unique<QueuedDevice>(*host_, random_(), habits);
  // Wakes know of the other device.
  if (peers_) device_->OrderBehind(StreamOfDevice(1, kLegacyDefaultStream), kLegacyDefaultStream);
  copies_ = std::make_unique<QueuedCopies>(*device_);
  runtime_ = std::make_unique<DeviceRuntime>(DeviceRuntime::Parts{.device = 0,
                                                                  .upstream = &upstream_,
                                                                  .driver = device_.get(),
                                                                  .fence = device_.get(),
                                                                  .plan = switches_ > 0 ? nullptr : &plan_,
                                                                  .awaits_plan = switches_ > 0,
                                                                  .dynamic = Happens(random_, 0.9),
                                                                  .moves_at_marks = Happens(random_, 0.5),
                                                                  .copies = copies_.get()});
}

bool ThreadedRun::Happens(std::mt19937_64& random, double share) const {
  return std::uniform_real_distribution<double>()(random) < share;
}

// One iteration in which the loops' requests come in some order.
DevicePlan ThreadedRun::MakePlan(const std::vector<std::vector<CorpusAllocation>>& programs) {
  struct Step {
    Tick at = 0;
    std::size_t program = 0;
    std::size_t request = 0;
    bool allocates = false;
  };
  std::vector<std::vector<Step>> steps(programs.size());
  for (std::size_t p = 0; p < programs.size(); ++p) {
    for (std::size_t r = 0; r < programs[p].size(); ++r) {
      steps[p].push_back({programs[p][r].alloc, p, r, true});
      if (programs[p][r].free >= 0) steps[p].push_back({programs[p][r].free, p, r, false});
    }
    std::sort(steps[p].begin(), steps[p].end(), [](const Step& a, const Step& b) { return a.at > b.at; });
  }
  std::vector<CorpusAllocation> merged;
  std::vector<std::uint32_t> ordinals;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> place;
  Tick now = 0;
  while (std::any_of(steps.begin(), steps.end(), [](const auto& left) { return !left.empty(); })) {
    std::vector<Step>& next = steps[random_() % steps.size()];
    for (std::uint64_t several = 1 + random_() % 8; several > 0 && !next.empty(); --several, next.pop_back(), ++now) {
      const Step step = next.back();
      if (!step.allocates) {
        merged[place.at({step.program, step.request})].free = now;
        continue;
      }
      place[{step.program, step.request}] = merged.size();
      merged.push_back({0, programs[step.program][step.request].bytes, now, -1});
      ordinals.push_back(static_cast<std::uint32_t>(step.program % streams_.size()));
    }
  }
  DevicePlan plan = FirstFitPlan(merged);
  for (std::size_t i = 0; i < ordinals.size(); ++i) plan.cycle[0].entries[i].stream = ordinals[i];
  return plan;
}

// Two to four turns, with other places in each: mirrored, or anywhere in the arena.
void ThreadedRun::AddTurns() {
  plan_.turns = static_cast<std::uint32_t>(2 + random_() % 3);
  for (std::uint32_t turn = 1; turn < plan_.turns; ++turn) {
    Script& script = plan_.cycle.emplace_back(plan_.cycle[0]);
    for (Entry& entry : script.entries) {
      if (entry.slot == kNoSlot || Happens(random_, 0.3)) continue;
      Slot slot = plan_.slots[entry.slot];
      const Bytes room = plan_.arena_bytes - slot.capacity;
      slot.offset = turn == 1 ? room - slot.offset : random_() % (room / kBlockAlignment + 1) * kBlockAlignment;
      entry.slot = static_cast<std::uint32_t>(plan_.slots.size());
      plan_.slots.push_back(slot);
    }
  }
}

// The run -------------------------------------------------------------------------------------------------------------

ThreadedRun::Result ThreadedRun::Run() {
  Result result;
  if (!runtime_->degraded().empty()) result.findings.first = runtime_->degraded();
  std::atomic<bool> stop{false};
  std::thread meddler([this, &stop, seed = random_()] { Meddle(seed, stop); });
  std::thread sleeper([this, &stop, seed = random_()] { SleepAndWake(seed, stop); });
  std::vector<std::thread> threads;
  for (Worker& worker : workers_) threads.emplace_back([this, &worker] { Work(worker); });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  meddler.join();
  sleeper.join();
  for (const Block& block : std::exchange(handed_over_, {})) Free(block, block.stream);
  (void)device_->Synchronize();
  (void)device_->SynchronizeOthers();
  result.findings = device_->GetFindings();
  for (const PlannedSpace* const space : runtime_->spaces()) {
    std::string broken = space->engine().CheckInvariants();
    if (broken.empty()) continue;
    result.findings.first = std::move(broken);
    ++result.findings.damaged;
  }
  if (!lost_.empty()) {
    result.findings = {.unmapped = 1, .first = lost_};  // what was found later follows from it
  }
  result.sleeps = sleeps_;
  result.refused = refused_;
  result.stats = runtime_->Stats();
  result.operations = operations_ + device_->operations();
  result.threads = static_cast<int>(workers_.size());
  result.streams = stream_count_;
  result.full = full_;
  result.peers = peers_;
  result.switched = result.stats.since_plan.has_value();
  return result;
}

void ThreadedRun::Work(Worker& worker) {
  const Divergence* const kinds[] = {&kFaithful, &kFaithful, &kSome, &kMuch};
  for (int i = 0; i < kIterations; ++i) Iterate(worker, *kinds[worker.random() % std::size(kinds)]);
  for (Block& block : std::exchange(worker.left_over, {})) End(worker, block);
}

void ThreadedRun::Iterate(Worker& worker, const Divergence& divergence) {
  if (worker.marks) TakePlan();
  if (worker.marks) Mark(MarkKind::kIteration, MarkEdge::kBegin);
  const StressIteration iteration = Diverge(worker.program, divergence, worker.random);
  std::vector<Block> blocks(iteration.requests.size());
  for (const ReplayStep& step : iteration.steps) {
    Block& block = blocks[step.request];
    if (step.allocate) {
      Allocate(worker, block, iteration.requests[step.request].bytes);
    } else {
      End(worker, block);
    }
    if (Happens(worker.random, 0.02)) Mark(MarkKind::kMicrobatch, MarkEdge::kBegin);
    if (Happens(worker.random, 0.1)) FreeOfOthers(worker);
  }
  for (Block& block : std::exchange(worker.left_over, {})) End(worker, block);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (iteration.requests[i].freed_next_iteration) worker.left_over.push_back(blocks[i]);
  }
}

void ThreadedRun::Allocate(Worker& worker, Block& block, Bytes bytes) {
  ++operations_;
  block.bytes = BlockBytes(bytes);
  block.stream = worker.stream;
  block.key = next_key_.fetch_add(1) * kKeyStep;
  const Origin origin = Happens(worker.random, 0.02) ? Origin::kParallel : Origin::kProgram;
  block.in_region = Happens(worker.random, 0.3);
  (void)SleepTags::Enter(block.in_region ? RegionTag() : 0);
  try {
    block.pointer = static_cast<std::byte*>(runtime_->Allocate(bytes, block.stream, origin));
  } catch (const std::bad_alloc&) {
    return;  // upstream had nothing, nor had the arena anything to give back
  } catch (const AsleepError&) {
    ++refused_;
    return;
  }
  if (!Happens(worker.random, 0.1)) Launch(worker, block);
  if (Happens(worker.random, 0.05)) UseElsewhere(worker, block);
}

// Upstream's memory is its own business.
void ThreadedRun::Launch(Worker& worker, Block& block) {
  const InUse in_use = Use(block);
  for (const StreamHandle stream : std::exchange(worker.behind, {})) device_->OrderBehind(worker.stream, stream);
  if (!runtime_->Owns(block.pointer)) return;
  device_->Launch(block.stream, {reinterpret_cast<Address>(block.pointer), block.bytes, block.written, block.key});
  block.written = std::exchange(block.key, block.key + (Bytes{1} << 28));
}

// On another stream, which is recorded; on another device's as well.
void ThreadedRun::UseElsewhere(Worker& worker, Block& block) {
  const StreamHandle handle = 0x200u + 16u * (worker.random() % 4);
  const StreamHandle other = peers_ && Happens(worker.random, 0.5) ? StreamOfDevice(1, handle) : handle;
  if (!runtime_->Owns(block.pointer) || block.written == 0) return;
  const InUse in_use = Use(block);
  device_->OrderBehind(other, block.stream);
  runtime_->RecordStream(block.pointer, other);
  device_->Launch(other, {reinterpret_cast<Address>(block.pointer), block.bytes, block.written, block.key});
  block.elsewhere = true;
}

void ThreadedRun::End(Worker& worker, const Block& ended) {
  Block block = ended;
  if (block.pointer == nullptr) return;
  if (!block.elsewhere && Happens(worker.random, 0.8)) Launch(worker, block);
  if (worker.alone && block.written != 0 && !block.elsewhere && Happens(worker.random, 0.03)) {
    // Used unrecorded on a stream of the thread's own, and freed there: the block's stream waits before its next
    // kernel.
    const StreamHandle other = worker.stream + 1 + worker.random() % 3;
    {
      const InUse in_use = Use(block);
      device_->OrderBehind(other, block.stream);
      device_->Launch(other, {reinterpret_cast<Address>(block.pointer), block.bytes, block.written, block.key});
    }
    worker.behind.push_back(other);
    return Free(block, other);
  }
  if (Happens(worker.random, 0.9)) return Free(block, block.stream);
  const std::lock_guard lock(handed_over_mutex_);
  handed_over_.push_back(block);
}

void ThreadedRun::Free(const Block& block, StreamHandle current) {
  if (block.pointer == nullptr) return;
  ++operations_;
  runtime_->Free(block.pointer, current);
}

void ThreadedRun::FreeOfOthers(Worker& worker) {
  std::vector<Block> blocks;
  {
    const std::lock_guard lock(handed_over_mutex_);
    blocks.swap(handed_over_);
  }
  for (const Block& block : blocks) Free(block, worker.stream);
}

void ThreadedRun::Mark(MarkKind kind, MarkEdge edge, Pass pass) {
  ++operations_;
  const std::lock_guard lock(marks_mutex_);
  const int index = kind == MarkKind::kIteration ? iterations_++ : 0;
  runtime_->OnMark({.kind = kind, .edge = edge, .pass = pass, .index = index, .name = {}});
}

// Twice, if it is to be: not while somebody captures. Other threads are in the middle of theirs.
void ThreadedRun::TakePlan() {
  const std::lock_guard lock(marks_mutex_);
  const int next = switches_ == 2 ? 3 : 6;
  if (switches_ > 0 && iterations_ > next && runtime_->TakePlan(plan_, 0).empty()) --switches_;
}

// What else goes on in the process.
void ThreadedRun::Meddle(std::uint64_t seed, const std::atomic<bool>& stop) {
  std::mt19937_64 random(seed);
  const bool often = Happens(random, 0.3);
  while (!stop) {
    switch (random() % (often ? 8 : 64)) {
      case 0:
        runtime_->EmptyCache();
        break;
      case 1:
        runtime_->SetHeldLimit(random() % 2 * plan_.arena_bytes);
        break;
      case 2:
        upstream_.FailNext(1);
        break;
      case 3:
        Capture(random);
        break;
      case 4:
        Mark(MarkKind::kFence, MarkEdge::kBegin);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
        Mark(MarkKind::kFence, MarkEdge::kEnd);
        break;
      case 5:
        Mark(MarkKind::kLayer, random() % 2 == 0 ? MarkEdge::kBegin : MarkEdge::kEnd, Pass::kOther);
        break;
      default:
        (void)runtime_->Stats();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// All of it, or a region's blocks, which are woken with the others or by their name. Where only some are awake, other
// threads ask for memory that those asleep may need at their wake: on a full device all sleep and wake together.
void ThreadedRun::SleepAndWake(std::uint64_t seed, const std::atomic<bool>& stop) {
  std::mt19937_64 random(seed);
  const TagNames region = std::vector<std::string>{kRegion};
  (void)RegionTag();
  while (!stop) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    const bool all = full_ || random() % 2 == 0;
    const auto closed = all ? of_all_.Close() : of_region_.Close();
    // While a capture runs it is refused, and nothing has changed.
    if (!runtime_->Sleep({.tags = all ? std::nullopt : region, .keep = std::nullopt}).ok()) continue;
    ++sleeps_;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
    const TagNames woken = all || random() % 2 == 0 ? std::nullopt : region;
    if (all && !full_ && random() % 4 == 0) (void)runtime_->Wake(region);
    for (int tries = 0;; ++tries) {
      const auto figures = runtime_->Wake(woken);
      if (figures.ok()) break;
      if (tries == 2000) {
        lost_ = figures.error();
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// Nobody can wait for the device meanwhile.
void ThreadedRun::Capture(std::mt19937_64& random) {
  device_->BeginCapture(kCapturedStream);
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) {
    const Origin origin = random() % 2 == 0 ? Origin::kCaptured : Origin::kProgram;
    try {
      blocks.push_back(runtime_->Allocate(1 + random() % 10'000, kCapturedStream, origin));
    } catch (const std::bad_alloc&) {
      continue;
    } catch (const AsleepError&) {
      continue;
    }
  }
  for (void* const block : blocks) runtime_->Free(block, kCapturedStream);
  device_->EndCapture(kCapturedStream);
}

}  // namespace stalloc
