#include "proto/codec/trace_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/codec/frame.h"
#include "proto/codec/trace_rows.h"
#include "proto/trace.pb.h"

namespace stalloc {
namespace {

// Reads up to bytes->size(); what is missing at the end of the file is cut off.
absl::Status ReadFully(int fd, const std::string& path, std::string* bytes) {
  std::size_t filled = 0;
  while (filled < bytes->size()) {
    const ssize_t count = read(fd, bytes->data() + filled, bytes->size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read the trace"));
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  bytes->resize(filled);
  return absl::OkStatus();
}

}  // namespace

class TraceReader::Impl {
 public:
  explicit Impl(std::string path) : path_(std::move(path)) {}
  ~Impl() {
    if (fd_ >= 0) close(fd_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Open() {
    fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot open the trace"));
    struct stat status {};
    if (fstat(fd_, &status) != 0) return absl::ErrnoToStatus(errno, path_);
    if (!S_ISREG(status.st_mode)) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": expected a stalloc trace, found no regular file"));
    }
    total_ = static_cast<std::uint64_t>(status.st_size);
    return ReadMagic();
  }

  absl::StatusOr<bool> ReadChunk(Trace* trace) {
    if (!failure_.ok()) return failure_;
    if (!ended_) {
      absl::StatusOr<bool> more = NextFrame(trace);
      if (!more.ok()) failure_ = more.status();
      if (!more.ok() || *more) return more;
      ended_ = true;
    }
    trace->complete = truncation_.empty();
    trace->truncation = truncation_;
    return false;
  }

  const std::vector<BlockUse>& uses() const { return rows_.uses(); }
  std::uint64_t read() const { return read_; }
  std::uint64_t total() const { return total_; }

 private:
  absl::Status ReadMagic() {
    std::string magic(kMagicBytes, '\0');
    if (absl::Status status = Fill(&magic); !status.ok()) return status;
    if (magic != kTraceMagic.substr(0, magic.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": expected a stalloc trace, found ", DescribeMagic(magic)));
    }
    if (magic.size() < kMagicBytes) {
      Truncate(absl::StrCat("ends after ", magic.size(), " bytes, inside the magic"));
      ended_ = true;
    }
    return absl::OkStatus();
  }

  // Reads a frame and its chunk. False at the end, with truncation_ set unless the last chunk has been seen.
  absl::StatusOr<bool> NextFrame(Trace* trace) {
    const std::uint64_t start = read_;
    std::string header_bytes(kFrameHeaderBytes, '\0');
    if (absl::Status status = Fill(&header_bytes); !status.ok()) return status;
    if (header_bytes.empty()) {
      if (!last_seen_) Truncate(absl::StrCat("ends at byte ", start, " without a last chunk"));
      return false;
    }
    if (last_seen_) return Truncate(absl::StrCat("has bytes after its last chunk, from byte ", start));
    if (header_bytes.size() < kFrameHeaderBytes) return Cut(start);
    const FrameHeader header = DecodeFrameHeader(header_bytes.data());
    if (std::string problem = FrameLengthProblem(header); !problem.empty()) return Corrupt(start, problem);
    payload_.resize(std::min<std::uint64_t>(header.length, total_ > read_ ? total_ - read_ : 0));
    if (absl::Status status = Fill(&payload_); !status.ok()) return status;
    if (payload_.size() < header.length) return Cut(start);
    if (std::string problem = FrameChecksumProblem(header, payload_); !problem.empty()) return Corrupt(start, problem);
    return TakeChunk(start, trace);
  }

  absl::StatusOr<bool> TakeChunk(std::uint64_t start, Trace* trace) {
    message_.Clear();
    if (!message_.ParseFromString(payload_)) return Corrupt(start, "malformed message");
    if (message_.format_version() != kTraceFormatVersion) {
      const std::string found = absl::StrCat("format version ", message_.format_version(),
                                             "; this program reads version ", kTraceFormatVersion);
      if (rows_.chunks() == 0) return absl::InvalidArgumentError(absl::StrCat(path_, ": trace of ", found));
      return Corrupt(start, found);
    }
    if (std::string problem = rows_.Append(message_, trace); !problem.empty()) return Corrupt(start, problem);
    last_seen_ = message_.last();
    return true;
  }

  // The file stops inside a frame, as a killed writer leaves it.
  absl::StatusOr<bool> Cut(std::uint64_t start) {
    return Truncate(absl::StrCat("ends inside the chunk that starts at byte ", start));
  }

  // A bad chunk ends the valid prefix; a file whose first chunk is bad has none.
  absl::StatusOr<bool> Corrupt(std::uint64_t start, const std::string& problem) {
    if (rows_.chunks() == 0) {
      return absl::DataLossError(absl::StrCat(path_, ": corrupt trace: chunk 0 at byte ", start, ": ", problem));
    }
    return Truncate(absl::StrCat("is corrupt from byte ", start, ", chunk ", rows_.chunks(), ": ", problem));
  }

  bool Truncate(const std::string& problem) {
    truncation_ = absl::StrCat(path_, " ", problem, "; ", rows_.events(), " events before that are valid");
    return false;
  }

  absl::Status Fill(std::string* bytes) {
    absl::Status status = ReadFully(fd_, path_, bytes);
    read_ += bytes->size();
    return status;
  }

  const std::string path_;
  int fd_ = -1;
  std::uint64_t read_ = 0;
  std::uint64_t total_ = 0;
  bool ended_ = false;
  bool last_seen_ = false;
  std::string truncation_;
  absl::Status failure_;
  std::string payload_;
  proto::TraceChunk message_;
  TraceRows rows_;
};

TraceReader::TraceReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TraceReader::~TraceReader() = default;

absl::StatusOr<std::unique_ptr<TraceReader>> TraceReader::Open(const std::string& path) {
  auto impl = std::make_unique<Impl>(path);
  if (absl::Status status = impl->Open(); !status.ok()) return status;
  return std::unique_ptr<TraceReader>(new TraceReader(std::move(impl)));
}

absl::StatusOr<bool> TraceReader::ReadChunk(Trace* trace) { return impl_->ReadChunk(trace); }
const std::vector<BlockUse>& TraceReader::uses() const { return impl_->uses(); }
std::uint64_t TraceReader::bytes_read() const { return impl_->read(); }
std::uint64_t TraceReader::bytes_total() const { return impl_->total(); }

absl::StatusOr<Trace> ReadTrace(const std::string& path, const ReadProgress& progress) {
  absl::StatusOr<std::unique_ptr<TraceReader>> reader = TraceReader::Open(path);
  if (!reader.ok()) return reader.status();
  Trace trace;
  while (true) {
    const absl::StatusOr<bool> more = (*reader)->ReadChunk(&trace);
    if (!more.ok()) return more.status();
    if (!*more) return trace;
    if (progress) progress((*reader)->bytes_read(), (*reader)->bytes_total());
  }
}

}  // namespace stalloc
