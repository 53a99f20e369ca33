#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "pipeline/store/manifest.hpp"

namespace distilld {

/// Whether the teacher of the store that is there (first) is the one that will be stored. Empty: equal texts, or one of
/// them empty.
using SameTeacher = std::function<bool(const std::string&, const std::string&)>;

/// The manifest of the store that is there, when it is of the same data, or of the one that is made. Nobody else may be
/// making it. The error (invalid_input) names the field in which that one is of other data.
Result<StoreManifest> agree_on_manifest(const std::filesystem::path& folder, const StoreManifest& wanted,
                                        const SameTeacher& same_teacher);

}  // namespace distilld
