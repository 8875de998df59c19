#include "proto/codec/plan_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "proto/codec/frame.h"
#include "proto/codec/plan_message.h"
#include "proto/model/plan_shape.h"

namespace stalloc {
namespace {

using std::to_string;

constexpr std::size_t kMostBytes = kMagicBytes + kFrameHeaderBytes + kMaxPayloadBytes;

// The payload of the file's only frame, or what is wrong with the file.
Result<std::string_view> UnwrapFrame(std::string_view bytes) {
  const std::string_view magic = bytes.substr(0, kMagicBytes);
  if (magic.empty() || magic != kPlanMagic.substr(0, magic.size())) {
    return Error{"expected a stalloc plan, found " + DescribeMagic(bytes)};
  }
  if (bytes.size() < kMagicBytes + kFrameHeaderBytes) {
    return Error{"truncated plan: it ends after " + to_string(bytes.size()) + " bytes, inside its header"};
  }
  const FrameHeader header = DecodeFrameHeader(bytes.data() + kMagicBytes);
  const std::string_view rest = bytes.substr(kMagicBytes + kFrameHeaderBytes);
  if (std::string problem = FrameLengthProblem(header); !problem.empty()) return Error{"corrupt plan: " + problem};
  if (rest.size() < header.length) {
    return Error{"truncated plan: expected " + to_string(header.length) + " bytes of content, found " +
                 to_string(rest.size())};
  }
  const std::string_view payload = rest.substr(0, header.length);
  if (std::string problem = FrameChecksumProblem(header, payload); !problem.empty()) {
    return Error{"corrupt plan: " + problem};
  }
  if (rest.size() > header.length) {
    return Error{"corrupt plan: " + to_string(rest.size() - header.length) + " bytes follow its end"};
  }
  return payload;
}

Result<std::string> ReadWholeFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Error{path + ": cannot open the plan: " + std::strerror(errno)};
  struct stat status {};
  std::string bytes;
  int failure = fstat(fd, &status) == 0 ? 0 : errno;
  if (failure == 0 && static_cast<std::uint64_t>(status.st_size) > kMostBytes) {
    close(fd);
    return Error{path + ": expected a plan of " + to_string(kMostBytes) + " bytes at most, found " +
                 to_string(status.st_size)};
  }
  if (failure == 0) bytes.resize(static_cast<std::size_t>(status.st_size));
  std::size_t filled = 0;
  while (failure == 0 && filled < bytes.size()) {
    const ssize_t count = read(fd, bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) failure = errno;
    if (count <= 0) break;
    filled += static_cast<std::size_t>(count);
  }
  close(fd);
  if (failure != 0) return Error{path + ": cannot read the plan: " + std::strerror(failure)};
  bytes.resize(filled);
  return bytes;
}

}  // namespace

Result<Plan> ParsePlan(std::string_view bytes, const std::string& name) {
  const Result<std::string_view> payload = UnwrapFrame(bytes);
  if (!payload.ok()) return Error{name + ": " + payload.error()};
  Result<Plan> plan = ParsePlanMessage(payload.value());
  if (!plan.ok()) return Error{name + ": " + plan.error()};
  if (const Status shape = CheckPlanShape(plan.value()); !shape.ok()) return Error{name + ": " + shape.error()};
  return plan;
}

Result<Plan> ReadPlan(const std::string& path) {
  const Result<std::string> bytes = ReadWholeFile(path);
  if (!bytes.ok()) return Error{bytes.error()};
  return ParsePlan(bytes.value(), path);
}

}  // namespace stalloc
