#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/job_types.hpp"
#include "base/error.hpp"
#include "base/files/descriptor.hpp"

namespace distilld {

/// The output folder of a job that has succeeded, and the files that the job wrote there for clients; never others.
struct ArtifactFolder {
    std::filesystem::path root;
    std::shared_ptr<const Descriptor> open;  ///< reaches the files even if the name now leads elsewhere; shared: a
                                             ///< stream may outlive the request
    std::vector<std::string> files;          ///< names relative to the root with / as separator, sorted
};

/// For a training job these are the files that its export names in distilld.json (server/worker/export_owner.hpp), and
/// those of its sinks in the folder. For a generate job these are the files of the store, with the shards in its list.
/// Empty when the folder is gone or now holds the model of another run. An error when it cannot be read. Blocks.
Result<std::optional<ArtifactFolder>> artifact_folder_of(const api::Job& job);

struct ArtifactEntry {
    std::string name;  ///< relative to the root, with / as separator
    bool folder = false;
};

/// The files that exist, are regular and are reached without a link, and their folders; sorted by name, a folder before
/// its content. Blocks.
Result<std::vector<ArtifactEntry>> list_artifacts(const ArtifactFolder& folder);

/// An opened file. The first `size` bytes are read.
class ArtifactFile {
  public:
    ArtifactFile(Descriptor opened, std::string name, std::uint64_t size_in, std::int64_t modified_in)
        : size(size_in), modified(modified_in), name_(std::move(name)), descriptor_(std::move(opened)) {}

    /// Up to `limit` of the next bytes; empty at the end. ErrorException when it cannot be read, or when it ends before
    /// `size` because somebody has cut it off. Bytes beyond `size` are ignored. Blocks.
    [[nodiscard]] std::string read(std::size_t limit);

    std::uint64_t size = 0;
    std::int64_t modified = 0;  ///< Unix time

  private:
    std::string name_;
    std::uint64_t done_ = 0;
    Descriptor descriptor_;
};

/// Opens one of the folder's files by name. Empty when there is no such file, it is not listed, or its path contains a
/// link. Blocks.
Result<std::optional<ArtifactFile>> open_artifact(const ArtifactFolder& folder, const std::string& name);

}  // namespace distilld
