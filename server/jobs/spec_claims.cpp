#include "server/jobs/spec_claims.hpp"

#include <filesystem>
#include <string>
#include <utility>

#include "api/spec_fields.hpp"
#include "api/spec_paths.hpp"
#include "base/file_patterns.hpp"
#include "server/security/path_rule.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using api::PathUse;

/// A path that leads nowhere (links in a circle) is claimed as it stands: whoever opens it finds out.
std::string resolved(const fs::path& path) {
    return resolved_path(path).value_or(path).string();
}

std::string resolved_pattern(const std::string& path) {
    const fs::path fixed = fixed_part(path);
    const fs::path rest = fs::path(path).lexically_relative(fixed);
    return fixed == path || rest.empty() ? resolved(path) : (fs::path(resolved(fixed)) / rest).string();
}

}  // namespace

std::vector<PathClaim> claims_of(const JobSpec& spec) {
    std::vector<PathClaim> claims;
    api::each_path(spec, api::spec_table(), [&](const api::NamedPath& named) {
        const bool is_generate = spec.kind == JobKind::generate;
        if (is_generate && named.field.pointer == "/output") {
            return;  // it is the store
        }
        auto place = named.use == PathUse::reads ? resolved_pattern(named.path) : resolved(named.path);
        claims.push_back({std::move(place), named.use, named.pointer, is_generate && named.use == PathUse::shares});
    });
    if (spec.kind == JobKind::train && spec.checkpoint.dir.empty()) {
        claims.push_back({resolved(fs::path(spec.output) / "checkpoints"), PathUse::writes, "/output"});
    }
    return claims;
}

}  // namespace distilld
