#include "allocator/sleep/arena_sleep.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

namespace stalloc {
namespace {

// So much is mapped before the copies into it are given to the device, which copies while more is mapped.
constexpr Bytes kMappedAtOnce = Bytes{256} << 20;

// A sleep's copies are in up to so many parts, of so many granules at least: what the device still has to copy while
// the host unmaps is all but one of them, and a copy of less does not run at full speed.
constexpr Bytes kMostParts = 64;
constexpr Bytes kLeastGranules = 16;

Arena::Range RangeOf(const LiveBlock& block) { return {block.offset, block.bytes}; }

// Ascending blocks that the program has not freed.
std::vector<LiveBlock> LiveBlocksOf(const PlanEngine& engine) {
  std::vector<LiveBlock> blocks = engine.LiveBlocks();
  std::erase_if(blocks, [](const LiveBlock& block) { return block.freed_pending; });
  return blocks;
}

std::string Describe(const LiveBlock& block, Address base) {
  char text[96];
  std::snprintf(text, sizeof(text), "%llu bytes at 0x%llx", static_cast<unsigned long long>(block.requested),
                static_cast<unsigned long long>(base + block.offset));
  return text;
}

bool Touches(std::span<const Arena::Range> ranges, const Arena::Range& range) {
  const auto next =
      std::partition_point(ranges.begin(), ranges.end(), [&](const auto& one) { return EndOf(one) <= range.offset; });
  return next != ranges.end() && next->offset < EndOf(range);
}

}  // namespace

void ArenaSleep::Begin() {
  engine_.Pause();
  held_ = chunks_.Hold();
  figures_ = {};
  needed_ = 0;
  marked_ = false;
  for (Ranges* const ranges : {&blocks_, &drops_, &idle_, &sleeping_, &saves_, &rest_, &given_, &mapped_}) {
    ranges->clear();
  }
  parts_.clear();
  pieces_.clear();
  ForgetEnded();
}

void ArenaSleep::End(bool pauses) noexcept {
  if (held_.owns_lock()) {
    chunks_.NoteCopies();
    held_.unlock();
  }
  if (!pauses) engine_.Resume();
}

// Blocks that ended while they slept left their bytes at the host; another block may have their place by now.
void ArenaSleep::ForgetEnded() {
  Ranges asleep;
  for (const LiveBlock& block : LiveBlocksOf(engine_)) {
    if (block.asleep) asleep.push_back(RangeOf(block));
  }
  saved_.KeepOnly(asleep, pool_);
  dropped_ = Common(dropped_, asleep);
}

// Sleep ---------------------------------------------------------------------------------------------------------------

Status ArenaSleep::Choose(const Choice& choice, bool all) {
  std::string shared;
  Ranges kept;
  Ranges awake;
  Ranges asleep;
  Ranges others;  // that live
  for (const LiveBlock& block : LiveBlocksOf(engine_)) {
    others.push_back(RangeOf(block));
    if (block.asleep) {
      asleep.push_back(RangeOf(block));
      continue;
    }
    const Fate fate = choice(block);
    if (fate == Fate::kStaysAwake) {
      awake.push_back(RangeOf(block));
      continue;
    }
    if (block.shared) shared += (shared.empty() ? "" : ", ") + Describe(block, arena_.base());
    blocks_.push_back(RangeOf(block));
    ++figures_.blocks;
    (fate == Fate::kKept ? kept : drops_).push_back(RangeOf(block));
  }
  if (!shared.empty()) {
    return Error{
        "blocks that were shared with another process (CUDA IPC) cannot sleep, since it would keep their old "
        "memory: " +
        shared + "; free them first, or leave them out by their region's tag"};
  }
  for (const Arena::Range& chunk : arena_.Chunks()) {
    if (Touches(awake, chunk)) continue;
    if (!Touches(others, chunk)) {
      if (all) idle_.push_back(chunk);
    } else if (all || Touches(blocks_, chunk)) {
      sleeping_.push_back(chunk);
    }
  }
  Ranges kept_there = OnDeviceAlone(asleep);
  kept_there.insert(kept_there.end(), kept.begin(), kept.end());
  saves_ = Common(Joined(std::move(kept_there)), Joined(sleeping_));
  figures_.kept = SumOf(kept);
  figures_.dropped = SumOf(drops_);
  return Ok{};
}

// What of sleeping blocks has stayed, since others in its chunk were awake.
Ranges ArenaSleep::OnDeviceAlone(const Ranges& asleep) const {
  Ranges saved;
  for (const SavedBytes::Part& part : saved_.In(asleep)) saved.push_back(part.range);
  return Without(Without(asleep, dropped_), saved);
}

Status ArenaSleep::Reserve() {
  // Chunks that cannot be withdrawn, since the engine would have to remember too many ranges, stay, and so do the bytes
  // in them.
  const auto cannot_go = [this](const Arena::Range& chunk) {
    return !engine_.WithdrawUnderBlocks(chunk.offset, chunk.bytes);
  };
  std::erase_if(idle_, cannot_go);
  std::erase_if(sleeping_, cannot_go);
  saves_ = Common(saves_, Joined(sleeping_));
  Result<std::vector<HostPool::Piece>> taken = pool_.Take(SumOf(saves_));
  if (!taken.ok()) return Error{taken.error()};
  pieces_ = std::move(taken).value();
  saved_.Add(saves_, pieces_);
  Divide();
  return Ok{};
}

void ArenaSleep::Divide() {
  const Bytes least = std::max(kLeastGranules * granularity_, SumOf(saves_) / kMostParts);
  Bytes bytes = least;  // of the last part
  for (const Arena::Range& chunk : sleeping_) {
    if (Touches(drops_, chunk) || !Touches(saves_, chunk)) {
      rest_.push_back(chunk);
      continue;
    }
    if (bytes >= least) {
      parts_.emplace_back();
      bytes = 0;
    }
    parts_.back().push_back(chunk);
    bytes += chunk.bytes;
  }
}

DriverStatus ArenaSleep::Save() {
  const auto save = [this](const Ranges& chunks) -> DriverStatus {
    for (const SavedBytes::Part& part : saved_.In(Joined(Common(saves_, chunks)))) {
      if (const DriverStatus status = copies_.ToHost(part.at, AddressOf(part.range.offset), part.range.bytes);
          !status.ok()) {
        return status;
      }
      figures_.copied += part.range.bytes;
      ++figures_.copies;
    }
    return copies_.Mark();
  };
  for (const Ranges& part : parts_) {
    if (const DriverStatus status = save(part); !status.ok()) return status;
  }
  return save(rest_);
}

void ArenaSleep::Give(const Ranges& chunks) {
  NoteGivenBack(chunks);
  figures_.given_back += chunks_.Release(chunks);
}

void ArenaSleep::GiveIdle() { Give(idle_); }

// A block is asleep before its memory goes: a thread that frees it then reads none of its bytes.
DriverStatus ArenaSleep::GiveSaved() {
  SetAsleep(blocks_, true);
  marked_ = true;
  for (const Ranges& part : parts_) {
    if (const DriverStatus status = copies_.AwaitMark(); !status.ok()) return status;
    given_.insert(given_.end(), part.begin(), part.end());
    Give(part);
  }
  return copies_.AwaitMark();
}

void ArenaSleep::Commit() {
  dropped_.insert(dropped_.end(), drops_.begin(), drops_.end());
  std::sort(dropped_.begin(), dropped_.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  Give(rest_);
  chunks_.RestoreBacked(idle_);  // what the driver has refused
  chunks_.RestoreBacked(sleeping_);
}

// One that the program has freed meanwhile needs nothing any more.
void ArenaSleep::SetAsleep(const Ranges& blocks, bool asleep) {
  for (const Arena::Range& block : blocks) (void)engine_.SetAsleep(block.offset, asleep);
}

// Wake ----------------------------------------------------------------------------------------------------------------

void ArenaSleep::ChooseAsleep(const std::function<bool(const LiveBlock&)>& wakes) {
  for (const LiveBlock& block : LiveBlocksOf(engine_)) {
    if (!block.asleep || !wakes(block)) continue;
    blocks_.push_back(RangeOf(block));
    ++figures_.blocks;
  }
  drops_ = Common(dropped_, blocks_);
  figures_.dropped = SumOf(drops_);
  figures_.kept = SumOf(blocks_) - figures_.dropped;
  needed_ = SumOf(PartsToMap(blocks_));
}

bool ArenaSleep::IsHole(const Arena::Range& range) const {
  const Ranges holes = arena_.HolesIn(range.offset, range.bytes);
  return holes.size() == 1 && holes.front().bytes == range.bytes;
}

// Chunks as they were; where a request has had some of one mapped meanwhile, what is missing.
Ranges ArenaSleep::PartsToMap(const Ranges& blocks) const {
  Ranges parts;
  for (const Arena::Range& chunk : given_back_) {
    if (Touches(blocks, chunk) && IsHole(chunk)) parts.push_back(chunk);
  }
  Ranges missing;
  Offset seen = 0;
  for (const Arena::Range& block : blocks) {
    const Offset begin = std::max(seen, block.offset / granularity_ * granularity_);
    const Offset end = RoundUp(EndOf(block), granularity_);
    if (end <= begin) continue;
    const Ranges holes = arena_.HolesIn(begin, end - begin);
    missing.insert(missing.end(), holes.begin(), holes.end());
    seen = end;
  }
  const Ranges others = Without(missing, parts);
  parts.insert(parts.end(), others.begin(), others.end());
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return parts;
}

// What is known of the same addresses from before is no longer true.
void ArenaSleep::NoteGivenBack(const Ranges& chunks) {
  std::erase_if(given_back_, [&](const Arena::Range& old) { return Touches(chunks, old); });
  given_back_.insert(given_back_.end(), chunks.begin(), chunks.end());
  std::sort(given_back_.begin(), given_back_.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
}

DriverStatus ArenaSleep::Restore(bool fills) {
  const Ranges parts = PartsToMap(blocks_);
  Offset copied_to = 0;
  for (auto first = parts.begin(); first != parts.end();) {
    auto last = first;
    for (Bytes bytes = 0; last != parts.end() && bytes < kMappedAtOnce; ++last) bytes += last->bytes;
    const std::span<const Arena::Range> batch(first, last);
    if (const DriverStatus status = chunks_.MapAgain(batch); !status.ok()) return status;
    mapped_.insert(mapped_.end(), first, last);
    figures_.given_back += SumOf(batch);
    if (const DriverStatus status = CopyBack(copied_to, EndOf(batch.back())); !status.ok()) return status;
    copied_to = EndOf(batch.back());
    first = last;
  }
  if (const DriverStatus status = CopyBack(copied_to, arena_.reserved_bytes()); !status.ok()) return status;
  return fills ? FillDropped() : DriverStatus{};
}

// What is saved of the blocks between two offsets, up to which all of them are mapped.
DriverStatus ArenaSleep::CopyBack(Offset from, Offset to) {
  const Arena::Range between{from, to - from};
  for (const SavedBytes::Part& part : saved_.In(Joined(Common(blocks_, {&between, 1})))) {
    if (const DriverStatus status = copies_.ToDevice(AddressOf(part.range.offset), part.at, part.range.bytes);
        !status.ok()) {
      return status;
    }
    figures_.copied += part.range.bytes;
    ++figures_.copies;
  }
  return {};
}

DriverStatus ArenaSleep::FillDropped() {
  for (const Arena::Range& range : Joined(drops_)) {
    if (const DriverStatus status = copies_.Fill(AddressOf(range.offset), range.bytes); !status.ok()) return status;
  }
  return {};
}

void ArenaSleep::WithdrawIdle() {
  Ranges live;
  for (const LiveBlock& block : LiveBlocksOf(engine_)) live.push_back(RangeOf(block));
  for (const Arena::Range& chunk : arena_.Chunks()) {
    if (!Touches(live, chunk) && engine_.WithdrawUnderBlocks(chunk.offset, chunk.bytes)) idle_.push_back(chunk);
  }
}

Bytes ArenaSleep::ReleaseIdle() {
  const Bytes released = chunks_.Release(idle_);
  chunks_.RestoreBacked(idle_);
  idle_.clear();
  return released;
}

void ArenaSleep::CommitAwake(bool all) {
  SetAsleep(blocks_, false);
  chunks_.RestoreBacked(given_back_);
  saved_.Drop(blocks_, pool_);
  std::erase_if(dropped_, [this](const Arena::Range& block) { return Touches(blocks_, block); });
  if (all) MapIdle();
  std::erase_if(given_back_, [this](const Arena::Range& chunk) { return !IsHole(chunk); });
}

// As far as the device has memory: the rest is mapped when requests need it, as ever.
void ArenaSleep::MapIdle() {
  Ranges idle = std::exchange(given_back_, {});
  std::erase_if(idle, [this](const Arena::Range& chunk) { return !IsHole(chunk); });
  for (auto first = idle.begin(); first != idle.end();) {
    auto last = first;
    for (Bytes bytes = 0; last != idle.end() && bytes < kMappedAtOnce; ++last) bytes += last->bytes;
    const std::span<const Arena::Range> batch(first, last);
    if (!chunks_.MapAgain(batch).ok()) return;
    figures_.given_back += SumOf(batch);
    chunks_.RestoreBacked(batch);
    first = last;
  }
}

Bytes ArenaSleep::Undo() noexcept {
  chunks_.Release(mapped_);
  mapped_.clear();
  figures_.copied = figures_.copies = figures_.given_back = 0;
  const Bytes left = UndoSleep();
  chunks_.RestoreBacked(idle_);
  chunks_.RestoreBacked(sleeping_);
  const auto is_back = [this](const Arena::Range& chunk) { return Touches(idle_, chunk); };
  std::erase_if(given_back_, is_back);
  idle_.clear();
  return left;
}

// What went comes back from the host. Else the blocks of which something went sleep: the rest of them has never left.
Bytes ArenaSleep::UndoSleep() {
  Ranges left;
  if (BringBack(given_)) {
    if (!pieces_.empty()) saved_.Drop(saves_, pool_);
  } else {
    std::copy_if(blocks_.begin(), blocks_.end(), std::back_inserter(left),
                 [this](const Arena::Range& block) { return Touches(given_, block); });
    saved_.Drop(Without(saves_, Joined(given_)), pool_);
  }
  if (marked_) SetAsleep(Without(blocks_, left), false);
  return SumOf(left);
}

bool ArenaSleep::BringBack(const Ranges& chunks) {
  Ranges gone = chunks;
  std::erase_if(gone, [this](const Arena::Range& chunk) { return !IsHole(chunk); });  // what the driver has refused
  if (gone.empty()) return true;
  DriverStatus status = chunks_.MapAgain(gone);
  if (!status.ok()) return false;
  for (const SavedBytes::Part& part : saved_.In(Joined(Common(saves_, gone)))) {
    if (status.ok()) status = copies_.ToDevice(AddressOf(part.range.offset), part.at, part.range.bytes);
  }
  const bool all_done = copies_.Await().ok();
  if (status.ok() && all_done) return true;
  (void)chunks_.Release(gone);
  return false;
}

bool ArenaSleep::Read(const Arena::Range& range, std::byte* to) const {
  const std::vector<SavedBytes::Part> parts = saved_.In({&range, 1});
  Bytes found = 0;
  for (const SavedBytes::Part& part : parts) found += part.range.bytes;
  if (found != range.bytes) return false;
  for (const SavedBytes::Part& part : parts) {
    std::memcpy(to + (part.range.offset - range.offset), part.at, part.range.bytes);
  }
  return true;
}

Bytes ArenaSleep::AsleepBytes() const {
  Bytes bytes = 0;
  for (const LiveBlock& block : engine_.LiveBlocks()) bytes += block.asleep ? block.bytes : 0;
  return bytes;
}

}  // namespace stalloc
