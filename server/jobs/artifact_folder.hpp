#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/job_types.hpp"
#include "base/descriptor.hpp"
#include "base/error.hpp"

namespace distilld {

/// The output folder of a job that has succeeded, and what the job wrote there for clients: never what else lies in it.
struct ArtifactFolder {
    std::filesystem::path root;
    std::shared_ptr<const Descriptor> open;  ///< its files are reached through it, whatever its name leads to by then;
                                             ///< shared: a stream may outlive the request
    std::vector<std::string> files;          ///< names below the root with / between their parts, sorted
};

/// Of a training job these are the files that its export names in distilld.json (server/worker/export_owner.hpp) and
/// those of its sinks that lie in the folder; of a generate job those of the store, with the shards that its list has.
/// Nothing: the folder is gone, or holds the model of another run by now. An error: it cannot be read. Blocks.
Result<std::optional<ArtifactFolder>> artifact_folder_of(const api::Job& job);

struct ArtifactEntry {
    std::string name;  ///< below the root, with / between its parts
    bool folder = false;
};

/// Those of the folder's files that are there, regular and reached without a link, and the folders that they lie in;
/// by name, a folder before what is in it. Blocks.
Result<std::vector<ArtifactEntry>> list_artifacts(const ArtifactFolder& folder);

/// An opened file, of which `size` bytes are read.
class ArtifactFile {
  public:
    ArtifactFile(Descriptor opened, std::string name, std::uint64_t size_in, std::int64_t modified_in)
        : size(size_in), modified(modified_in), name_(std::move(name)), descriptor_(std::move(opened)) {}

    /// Up to `limit` of the next bytes; empty at the end. ErrorException when it cannot be read, and when it ends
    /// before `size`: somebody has cut it off meanwhile. What it has grown by is left. Blocks.
    [[nodiscard]] std::string read(std::size_t limit);

    std::uint64_t size = 0;
    std::int64_t modified = 0;  ///< Unix time

  private:
    std::string name_;
    std::uint64_t done_ = 0;
    Descriptor descriptor_;
};

/// One of the folder's files by its name. Nothing: there is no such file, it is none of them, or a link stands for it
/// or for a folder on its way. Blocks.
Result<std::optional<ArtifactFile>> open_artifact(const ArtifactFolder& folder, const std::string& name);

}  // namespace distilld
