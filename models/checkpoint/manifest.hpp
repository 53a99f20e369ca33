#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/student_snapshot.hpp"

namespace distilld::models {

/// state.json of a checkpoint folder: everything that is not a tensor, and the SHA-256 of every other file in it. Its
/// last member, "sha256", is the hash of the text without that member. It is written last, so a folder without it is
/// not a checkpoint. Torch-free.
struct CheckpointManifest {
    RunState run;
    std::uint64_t adam_steps = 0;              ///< updates the optimizer has made: t of the next update minus 1
    std::string config_json;                   ///< shape of the network, canonical form
    std::map<std::string, std::string> files;  ///< file name -> SHA-256, hex
};

inline constexpr const char* kManifestFile = "state.json";
inline constexpr std::int64_t kCheckpointFormatVersion = 1;

/// Errors name the file and the field; those of kind io mean a damaged file. A file of an earlier version has no
/// SHA-256 of its own and is read without that check.
Result<CheckpointManifest> read_checkpoint_manifest(const std::filesystem::path& folder);
Result<void> write_checkpoint_manifest(const std::filesystem::path& folder, const CheckpointManifest& manifest);

/// Hashes every file the manifest names; the error names the first that is missing or differs.
Result<void> verify_checkpoint_files(const std::filesystem::path& folder, const CheckpointManifest& manifest);

}  // namespace distilld::models
