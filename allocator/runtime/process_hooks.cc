#include "allocator/runtime/process_hooks.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "allocator/base/mutex.h"
#include "allocator/runtime/session.h"

namespace stalloc {
namespace {

struct Watched {
  Mutex mutex;
  std::vector<Session*> sessions STALLOC_GUARDED_BY(mutex);  // guarded by mutex
};

// Never destroyed: handlers run after static destructors.
Watched& TheWatched() {
  static Watched* const watched = new Watched;
  return *watched;
}

void AtExit() {
  std::vector<Session*> sessions;
  {
    const LockGuard lock(TheWatched().mutex);
    sessions = TheWatched().sessions;
  }
  for (Session* session : sessions) session->Finish();
}

// The list is whole in the child because the fork happens with its mutex held.
void BeforeFork() STALLOC_NO_THREAD_SAFETY_ANALYSIS { TheWatched().mutex.lock(); }
void AfterForkInParent() STALLOC_NO_THREAD_SAFETY_ANALYSIS { TheWatched().mutex.unlock(); }
void AfterForkInChild() STALLOC_NO_THREAD_SAFETY_ANALYSIS {
  for (Session* session : TheWatched().sessions) session->BecomeInert();
  TheWatched().mutex.unlock();
}

}  // namespace

void WatchProcess(Session* session) {
  Watched& watched = TheWatched();
  static std::once_flag registered;
  std::call_once(registered, [] {
    std::atexit(AtExit);
    pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  });
  const LockGuard lock(watched.mutex);
  watched.sessions.push_back(session);
}

void UnwatchProcess(Session* session) {
  Watched& watched = TheWatched();
  const LockGuard lock(watched.mutex);
  std::erase(watched.sessions, session);
}

}  // namespace stalloc
