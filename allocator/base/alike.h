// Which rank says what several ranks of a launch have to say: the first of each machine.
//
// A process that prints binds a socket whose name has the launch and the kind of line, in Linux' abstract namespace:
// the kernel lets one process have a name, and takes it back when that process ends. Nothing is sent, and no file is
// left. patches/stalloc/core/alike.py does the same for what the package prints. Without heap memory, from any thread,
// and after fork().
#pragma once

#include <cstddef>
#include <cstdint>

namespace stalloc {

// Equal for lines that differ in their numbers alone: a rank in a path, bytes. Never 0.
[[nodiscard]] std::uint64_t KindOfLine(const char* text, std::size_t length) noexcept;

// False if another process of the launch on this machine has requested this kind first. Where there are no such
// sockets, and beyond 32 kinds, always true.
[[nodiscard]] bool SaysFirst(std::uint64_t launch, std::uint64_t kind) noexcept;

}  // namespace stalloc
