#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/job_spec_json.hpp"
#include "api/kinds/value_kinds.hpp"

namespace distilld {

/// Changes to an existing job.
struct JobPatch {
    std::optional<std::int32_t> priority;
    std::optional<std::uint32_t> max_concurrent;
    /// By name: the new text, or nullopt to remove the pair. Pairs that are not named stay.
    std::optional<std::map<std::string, std::optional<std::string>>> metadata;
};

/// Bounds of a job's metadata, in pairs and bytes.
inline constexpr std::size_t kMetadataPairs = 16;
inline constexpr std::size_t kMetadataNameBytes = 64;
inline constexpr std::size_t kMetadataTextBytes = 512;

/// Pairs of texts within these bounds; their number is not checked. `may_remove`: null means that the pair is removed.
[[nodiscard]] api::ValueKindPtr metadata_kind(bool may_remove);

/// Longest patch that is read, in bytes.
inline constexpr std::size_t kPatchSizeLimit = 64U << 10U;

/// Reads {"priority", "max_concurrent", "metadata"}. At least one must be there; reports all violations at once.
[[nodiscard]] boost::system::result<JobPatch, api::SpecViolations> parse_job_patch(std::string_view json);

/// The metadata with the patch applied; a violation if there are too many pairs.
[[nodiscard]] boost::system::result<std::map<std::string, std::string>, api::SpecViolations> patched_metadata(
    std::map<std::string, std::string> metadata, const JobPatch& patch);

}  // namespace distilld
