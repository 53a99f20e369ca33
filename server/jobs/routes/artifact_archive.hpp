#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/jobs/routes/artifact_folder.hpp"

struct archive;

namespace distilld {

/// A tar of a folder, made piece by piece: ustar, with pax headers where a name or a size is too long for it. The same
/// files give the same bytes: sorted names, whole seconds, no owners. Holds one piece in memory, whatever the size of
/// the files. Blocks; one thread at a time.
class ArtifactArchive {
  public:
    ArtifactArchive(ArtifactFolder folder, std::vector<ArtifactEntry> entries);
    ~ArtifactArchive();
    ArtifactArchive(const ArtifactArchive&) = delete;
    ArtifactArchive& operator=(const ArtifactArchive&) = delete;

    /// Approximate size of a piece.
    static constexpr std::size_t kPieceBytes = 256U << 10;

    /// The next piece, never empty; nullopt at the end. ErrorException when a file cannot be read or is gone.
    std::optional<std::string> next();

  private:
    struct Free {
        void operator()(archive* writer) const;
    };
    void begin_entry(const ArtifactEntry& entry);
    void check(int status) const;

    ArtifactFolder folder_;
    std::vector<ArtifactEntry> entries_;
    std::size_t next_entry_ = 0;
    std::optional<ArtifactFile> file_;  ///< being read
    struct Sink;
    std::unique_ptr<Sink> sink_;  ///< where libarchive writes
    bool closed_ = false;
    std::unique_ptr<archive, Free> writer_;  // last: it writes into the sink
};

}  // namespace distilld
