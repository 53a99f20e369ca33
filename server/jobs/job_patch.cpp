#include "server/jobs/job_patch.hpp"

#include <utility>

#include "api/job_types.hpp"
#include "api/kinds/object_fields.hpp"
#include "base/json_text.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepthLimit = 8;
/// The same as for `teacher.max_concurrent` of a spec.
constexpr std::uint64_t kMaxConcurrent = 1024;

class MetadataKind final : public api::ValueKind {
  public:
    explicit MetadataKind(bool may_remove) : may_remove_(may_remove) {}

    std::optional<json::value> read(const json::value& value, const api::FieldReport& report) const override {
        const auto* object = value.if_object();
        if (object == nullptr) {
            return refuse(report, "wrong_type", "an object is expected, not " + kind_name(value));
        }
        const auto wrong_before = report.violations.size();
        for (const auto& [name, text] : *object) {
            const auto pointer = std::string(report.pointer) + "/" + escape_pointer_token(name);
            const api::FieldReport pair{pointer, report.violations};
            if (name.empty() || name.size() > kMetadataNameBytes) {
                pair.violate("invalid_value", "a name has 1 to " + std::to_string(kMetadataNameBytes) + " bytes");
            } else if (!text.is_string() && !(may_remove_ && text.is_null())) {
                pair.wrong_type(may_remove_ ? "a string, or null to remove the pair," : "a string", text);
            } else if (text.is_string() && text.get_string().size() > kMetadataTextBytes) {
                pair.violate("too_large", "a text has at most " + std::to_string(kMetadataTextBytes) + " bytes");
            }
        }
        return report.violations.size() == wrong_before ? std::optional(value) : std::nullopt;
    }
    json::object schema() const override { return {{"type", "object"}}; }
    std::string values() const override { return "object of texts"; }

  private:
    bool may_remove_;
};

const std::vector<api::ObjectField<JobPatch>>& patch_fields() {
    static const std::vector<api::ObjectField<JobPatch>> fields{
        {"priority", api::make_integer(&JobPatch::priority, {api::kLowestPriority, api::kHighestPriority})},
        {"max_concurrent", api::make_integer(&JobPatch::max_concurrent, {1, kMaxConcurrent})},
        {"metadata", api::make_field(metadata_kind(true), &JobPatch::metadata)},
    };
    return fields;
}

api::SpecViolations too_many(std::size_t pairs) {
    return {{{"/metadata", "too_large",
              "a job has at most " + std::to_string(kMetadataPairs) + " pairs, given are " + std::to_string(pairs)}}};
}

}  // namespace

api::ValueKindPtr metadata_kind(bool may_remove) {
    return std::make_shared<MetadataKind>(may_remove);
}

boost::system::result<JobPatch, api::SpecViolations> parse_job_patch(std::string_view text) {
    api::SpecViolations wrong;
    JobPatch patch;
    if (const auto object = api::read_object(text, "the body", kPatchSizeLimit, kDepthLimit, wrong.violations)) {
        if (object->empty()) {
            wrong.violations.push_back(
                {"", "required", "nothing to change: give priority, max_concurrent or metadata"});
        }
        api::read_fields(*object, patch_fields(), patch, wrong.violations);
    }
    if (!wrong.violations.empty()) {
        return wrong;
    }
    return patch;
}

boost::system::result<std::map<std::string, std::string>, api::SpecViolations> patched_metadata(
    std::map<std::string, std::string> metadata, const JobPatch& patch) {
    if (patch.metadata) {
        for (const auto& [name, text] : *patch.metadata) {
            if (text) {
                metadata[name] = *text;
            } else {
                metadata.erase(name);
            }
        }
    }
    if (metadata.size() > kMetadataPairs) {
        return too_many(metadata.size());
    }
    return metadata;
}

}  // namespace distilld
