// Frames: what trace and plan files are made of below their messages. Layout: proto/FORMAT.md.
//
//   magic (8 bytes)   { length, crc32c (4 bytes each, little-endian), payload }   { ... }   ...
//
// A frame is whole, or it does not count. Stateless functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stalloc {

// For both messages. A reader refuses any other: see "Versions" in FORMAT.md.
inline constexpr std::uint32_t kTraceFormatVersion = 1;
inline constexpr std::uint32_t kPlanFormatVersion = 1;

// 0x89 catches channels that drop the eighth bit; the newline catches those that rewrite line ends.
inline constexpr std::string_view kTraceMagic{"\x89STLTRC\n", 8};
inline constexpr std::string_view kPlanMagic{"\x89STLPLN\n", 8};
inline constexpr std::size_t kMagicBytes = 8;
inline constexpr std::size_t kFrameHeaderBytes = 8;
// Longer frames are taken for corrupt. A chunk of a trace is below 2 MiB, the largest plan seen is below 10 MiB.
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{1} << 30;

// What a file is by its first bytes, to say in an error: "a stalloc trace", "a stalloc plan", or its first bytes in
// hex.
[[nodiscard]] std::string DescribeMagic(std::string_view first_bytes);

struct FrameHeader {
  std::uint32_t length = 0;
  std::uint32_t crc = 0;
};

// Reads kFrameHeaderBytes from `bytes`.
[[nodiscard]] FrameHeader DecodeFrameHeader(const char* bytes) noexcept;

// Empty: the header and a payload of `header.length` bytes belong together. Else what is wrong: an impossible length,
// or both checksums. A length of zero is wrong, too: a file system that lost its last blocks leaves zeros, whose
// checksum is zero.
[[nodiscard]] std::string FrameLengthProblem(const FrameHeader& header);
[[nodiscard]] std::string FrameChecksumProblem(const FrameHeader& header, std::string_view payload);

// A frame is built in place: reserve its header, append the payload, then fill the header in.
// Returns where the frame starts, for FinishFrame.
[[nodiscard]] std::size_t BeginFrame(std::string* out);
// REQUIRES: 0 < bytes appended since BeginFrame <= kMaxPayloadBytes.
void FinishFrame(std::size_t frame_start, std::string* out);

}  // namespace stalloc
