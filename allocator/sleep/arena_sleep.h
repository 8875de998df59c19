// ArenaSleep: puts blocks of one arena to sleep and wakes them: their bytes go to the host and come back, their memory
// goes to the device and is had again, their addresses stay (README).
//
//   Sleep:  Choose -> Reserve -> (the device is waited for) -> Save -> GiveIdle -> GiveSaved -> Commit
//   Wake:   ChooseAsleep      -> Restore -> (the device is ordered to run after the copies)    -> CommitAwake
//
// Calls come between Begin and End, and Undo puts back what was begun where a step of it, or of another
// arena of the device, fails. Not thread-safe; what other threads do to the arena meanwhile is in the README. Bytes.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/backing/idle_chunks.h"
#include "allocator/base/mutex.h"
#include "allocator/driver/device_copies.h"
#include "allocator/engine/plan_engine.h"
#include "allocator/sleep/host_pool.h"
#include "allocator/sleep/saved_bytes.h"
#include "proto/model/result.h"

namespace stalloc {

class ArenaSleep {
 public:
  enum class Fate : std::uint8_t { kStaysAwake, kKept, kDropped };
  using Choice = std::function<Fate(const LiveBlock&)>;

  struct Figures {
    std::uint64_t blocks = 0;
    Bytes kept = 0;     // of blocks; a part of it may lie in memory that others need
    Bytes dropped = 0;  // likewise
    Bytes copied = 0;   // to or from the host
    std::uint64_t copies = 0;
    Bytes given_back = 0;  // to the device, or had from it again
  };

  // All of them outlive this. `granularity`: of the driver.
  ArenaSleep(const Arena& arena, Bytes granularity, PlanEngine& engine, IdleChunks& chunks, DeviceCopies& copies,
             HostPool& pool)
      : arena_(arena), granularity_(granularity), engine_(engine), chunks_(chunks), copies_(copies), pool_(pool) {}
  ArenaSleep(const ArenaSleep&) = delete;
  ArenaSleep& operator=(const ArenaSleep&) = delete;

  // From here to End nothing is placed, mapped, moved or given back by others. `pauses`: nothing will be placed
  // afterwards, either, until an End that does not pause.
  void Begin();
  void End(bool pauses) noexcept;

  // Puts more to sleep, in addition to what sleeps. `all`: memory in which no block lives goes back, too. Nothing is
  // withdrawn yet. An error names blocks that cannot sleep.
  [[nodiscard]] Status Choose(const Choice& choice, bool all);
  // Takes what Save needs of the pool, and withdraws what will go back.
  [[nodiscard]] Status Reserve();
  // Gives the copies to the device, in parts. REQUIRES: the device was waited for since Reserve.
  [[nodiscard]] DriverStatus Save();
  // While they run: gives memory without blocks back, then that of each part whose copies are done. What was dropped
  // stays. A failure may be of any copy.
  void GiveIdle();
  [[nodiscard]] DriverStatus GiveSaved();
  // Gives the rest back. REQUIRES: GiveSaved returned for all arenas of the device.
  void Commit();

  // Of the blocks that sleep, those that will wake.
  void ChooseAsleep(const std::function<bool(const LiveBlock&)>& wakes);
  // Maps what they need, and gives the copies to the device as soon as there is memory for them. `fills`: what was
  // dropped gets the watch's pattern.
  [[nodiscard]] DriverStatus Restore(bool fills);
  // Where the device is full: withdraws memory in which no block lives, and gives it back. REQUIRES: nothing was
  // restored since Begin or Undo, and between the two the device was waited for.
  void WithdrawIdle();
  Bytes ReleaseIdle();
  // `all`: memory in which no block lives is had again as far as the device has it. Those awake may be used.
  void CommitAwake(bool all);

  // Puts back what the steps since Begin did: all that was awake is so again, all that slept sleeps. Blocks whose
  // memory cannot be had again, or not be copied to, sleep from now on: their bytes, else 0. REQUIRES: no copy is under
  // way.
  Bytes Undo() noexcept;

  [[nodiscard]] const Figures& figures() const noexcept { return figures_; }  // since Begin
  [[nodiscard]] Bytes needed_bytes() const noexcept { return needed_; }       // that a Restore has to map
  [[nodiscard]] Bytes saved_bytes() const noexcept { return saved_.bytes(); }
  // Copies bytes of a block that sleeps, out of the host's memory; false, and nothing is copied, where not all of them
  // are there. Neither Begin nor End.
  [[nodiscard]] bool Read(const Arena::Range& range, std::byte* to) const;
  // Blocks asleep, bytes.
  [[nodiscard]] Bytes AsleepBytes() const;

 private:
  [[nodiscard]] Address AddressOf(Offset offset) const noexcept { return arena_.base() + offset; }
  [[nodiscard]] DriverStatus CopyBack(Offset from, Offset to);
  [[nodiscard]] DriverStatus FillDropped();
  [[nodiscard]] bool IsHole(const Arena::Range& range) const;
  [[nodiscard]] Ranges PartsToMap(const Ranges& blocks) const;
  [[nodiscard]] Ranges OnDeviceAlone(const Ranges& asleep) const;
  void Divide();
  void Give(const Ranges& chunks);
  [[nodiscard]] Bytes UndoSleep();
  [[nodiscard]] bool BringBack(const Ranges& chunks);
  void SetAsleep(const Ranges& blocks, bool asleep);
  void NoteGivenBack(const Ranges& chunks);
  void MapIdle();
  void ForgetEnded();

  const Arena& arena_;
  const Bytes granularity_;
  PlanEngine& engine_;
  IdleChunks& chunks_;
  DeviceCopies& copies_;
  HostPool& pool_;
  std::unique_lock<Mutex> held_;

  SavedBytes saved_;
  Ranges dropped_;     // blocks that sleep and are kept nowhere
  Ranges given_back_;  // chunks as they were, so that they come back in the same sizes

  // For the step that is under way.
  Figures figures_;
  Ranges blocks_;              // that fall asleep, or wake
  Ranges drops_;               // of these, kept nowhere
  Ranges idle_;                // chunks without a block, that go back
  Ranges sleeping_;            // chunks that go back with their blocks
  Ranges saves_;               // what is copied of them
  std::vector<Ranges> parts_;  // of sleeping_, each to be given back after its copies
  Ranges rest_;                // of sleeping_, with bytes that are kept nowhere, to be given back when nothing can fail
  Ranges given_;               // of parts_, so far
  Ranges mapped_;              // by Restore
  bool marked_ = false;        // blocks_ as asleep
  Bytes needed_ = 0;
  std::vector<HostPool::Piece> pieces_;
};

}  // namespace stalloc
