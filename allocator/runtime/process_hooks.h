// What the process does to its sessions: finishes them at exit, makes them inert in a forked child.
//
// The handlers are registered with the first session and stay for the life of the process. Thread-safe.
#pragma once

namespace stalloc {

class Session;

void WatchProcess(Session* session);
// REQUIRES: was watched. After it returns no handler touches the session.
void UnwatchProcess(Session* session);

}  // namespace stalloc
