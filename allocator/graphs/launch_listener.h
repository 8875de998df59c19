// LaunchListener: is notified of the captures and launches of CUDA graphs, by pool, and may refuse a launch. Pure.
//
// A pool is named by its number (PoolFilters::OpenPool), which is one of the process, not of a device. Calls for one
// pool come one after another, from any thread; those for several pools may come at the same time. No lock of the
// pool's catalog is held meanwhile.
#pragma once

#include <cstdint>

#include "proto/model/units.h"

namespace stalloc {

// For a capture in its pool: 1 and up, in their order; 0: none.
using GraphId = std::uint32_t;

class LaunchListener {
 public:
  virtual ~LaunchListener() = default;

  enum class Verdict : std::uint8_t {
    kLaunch,
    kOutOfMemory,  // no memory for what has to leave the graph's bytes
    kCarriedGone,  // what an earlier graph left for this one was overwritten
    kNotOrdered,   // the stream could not be made to wait, or blocks of another thread are in the way
  };
  struct Answer {
    Verdict verdict = Verdict::kLaunch;
    GraphId giver = 0;  // of kCarriedGone: the graph that leaves the bytes; 0: not known
  };
  // May block. All but kLaunch: the graph is not launched, and AfterLaunch does not follow. `stream` is not captured.
  virtual Answer BeforeLaunch(std::uint32_t pool, GraphId graph, StreamHandle stream) noexcept = 0;
  // Also when the launch failed.
  virtual void AfterLaunch(std::uint32_t pool, GraphId graph, StreamHandle stream) noexcept = 0;

  // For traces: what is seen, also of pools that are not followable and of launches without a query.
  virtual void SeesCapture(std::uint32_t /*pool*/, GraphId /*graph*/, bool /*begins*/) noexcept {}
  virtual void SeesLaunch(std::uint32_t /*pool*/, GraphId /*graph*/, bool /*begins*/) noexcept {}
  // Once, if ever: its state may be set back from now on.
  virtual void SeesRestorable(std::uint32_t /*pool*/) noexcept {}

  // Requests may go to the pool from now on, and a capture may begin: nothing of it may be lent until it closes. Comes
  // before the native allocator opens it, and once where it is opened again meanwhile. False: what is lent could not be
  // taken back, so that it must not be opened.
  [[nodiscard]] virtual bool PoolOpens(std::uint32_t pool) noexcept = 0;
  // After the native allocator closed it, with no capture open. The catalog may have changed.
  virtual void PoolCloses(std::uint32_t pool) noexcept = 0;
  // The graph is launched no more: its executables are gone. Its last launch may still run.
  virtual void GraphGone(std::uint32_t /*pool*/, GraphId /*graph*/) noexcept {}

  // Each of these is the last call for the pool, if it succeeds. What is lent of it must be taken back before the
  // return. The last user leaves the pool: the native allocator may give its memory back.
  virtual void PoolLeft(std::uint32_t pool) noexcept = 0;
  // Its graphs can be launched where nobody sees it, from after this call on. `why`: lives for ever. False, as above:
  // then this must not come to be, and the call comes again.
  [[nodiscard]] virtual bool Unfollowable(std::uint32_t pool, const char* why) noexcept = 0;
};

}  // namespace stalloc
