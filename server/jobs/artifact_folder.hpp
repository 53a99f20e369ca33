#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/job_types.hpp"
#include "base/error.hpp"

namespace distilld {

/// The folder that a succeeded job has left, as clients get it: all of it but its checkpoints and what begins with a
/// dot (caches, locks, files that were never completed).
struct ArtifactFolder {
    std::filesystem::path root;         ///< without links and dots
    std::filesystem::path checkpoints;  ///< likewise
};

/// Nothing: the folder is gone, or holds the model of another run by now. An error: it cannot be read. Blocks.
Result<std::optional<ArtifactFolder>> artifact_folder_of(const api::Job& job);

struct ArtifactEntry {
    std::string name;  ///< below the root, with / between its parts
    bool folder = false;
};

/// Each folder and regular file, by name, a folder before what is in it. Links are taken for what they lead to where
/// that lies below the root, and left out elsewhere. Blocks.
Result<std::vector<ArtifactEntry>> list_artifacts(const ArtifactFolder& folder);

/// An opened file, of which `size` bytes are read.
class ArtifactFile {
  public:
    ArtifactFile(int descriptor, std::string name, std::uint64_t size_in, std::int64_t modified_in)
        : size(size_in), modified(modified_in), name_(std::move(name)), descriptor_(descriptor) {}
    ArtifactFile(ArtifactFile&& other) noexcept;
    ArtifactFile& operator=(ArtifactFile&& other) noexcept;
    ArtifactFile(const ArtifactFile&) = delete;
    ArtifactFile& operator=(const ArtifactFile&) = delete;
    ~ArtifactFile();

    /// Up to `limit` of the next bytes; empty at the end. ErrorException when it cannot be read, and when it ends
    /// before `size`: somebody has cut it off meanwhile. What it has grown by is left. Blocks.
    [[nodiscard]] std::string read(std::size_t limit);

    std::uint64_t size = 0;
    std::int64_t modified = 0;  ///< Unix time

  private:
    std::string name_;
    std::uint64_t done_ = 0;
    int descriptor_ = -1;
};

/// A file of list_artifacts() by its name. Nothing: there is no such file, or it is none of them, whichever way its
/// name tries to lead out. Blocks.
Result<std::optional<ArtifactFile>> open_artifact(const ArtifactFolder& folder, const std::string& name);

}  // namespace distilld
