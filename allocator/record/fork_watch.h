// ForkWatch: notifies live objects of this process of fork(), from the handlers of pthread_atfork.
//
// No object is added, removed or destroyed between the preparation and the fork. In the child the object stays
// registered (and reachable) for ever: what belonged to threads that do not exist there cannot be destroyed.
// Thread-safe. Not called for vfork, posix_spawn and clone: those children either exec at once or are not ours to know.
#pragma once

namespace stalloc {

class ForkWatch {
 public:
  virtual ~ForkWatch() = default;
  // In the parent, on the thread that calls fork().
  virtual void BeforeFork() noexcept = 0;
  // In the child, on its only thread. Only what fork() allows: no lock that another thread may have held.
  virtual void InChild() noexcept = 0;

 protected:
  // Both wait while a fork is under way.
  void StartWatching();
  void StopWatching() noexcept;
};

}  // namespace stalloc
