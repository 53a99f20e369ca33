#include "server/jobs/job_patch.hpp"

#include <boost/json/object.hpp>
#include <cmath>
#include <utility>

#include "api/job_types.hpp"
#include "api/text_checks.hpp"
#include "base/json_text.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepthLimit = 8;
/// As `teacher.max_concurrent` of a spec.
constexpr std::int64_t kMaxConcurrent = 1024;

class PatchReader {
  public:
    explicit PatchReader(api::SpecViolations& out) : out_(out.violations) {}

    JobPatch read(const json::object& object) {
        JobPatch patch;
        for (const auto& member : object) {
            const std::string name(member.key());
            const auto& value = member.value();
            if (name == "priority") {
                patch.priority = whole<std::int32_t>(value, "/priority", api::kLowestPriority, api::kHighestPriority);
            } else if (name == "max_concurrent") {
                patch.max_concurrent = whole<std::uint32_t>(value, "/max_concurrent", 1, kMaxConcurrent);
            } else if (name == "metadata") {
                read_metadata(value, patch);
            } else {
                unknown(name);
            }
        }
        if (object.empty()) {
            violate("", "required", "nothing is to be changed: give priority, max_concurrent or metadata");
        }
        return patch;
    }

  private:
    void violate(std::string pointer, const char* code, std::string detail) {
        out_.push_back({std::move(pointer), code, std::move(detail)});
    }

    void unknown(const std::string& name) {
        std::string detail = "unknown field " + api::quote(name);
        if (const auto meant = api::closest(name, {"priority", "max_concurrent", "metadata"})) {
            detail += "; did you mean \"" + *meant + "\"?";
        }
        violate("/" + escape_pointer_token(name), "unknown_field", std::move(detail));
    }

    template <class Integer>
    std::optional<Integer> whole(const json::value& value, const char* pointer, std::int64_t min, std::int64_t max) {
        if (!value.is_number()) {
            violate(pointer, "wrong_type", "a whole number is expected, not " + kind_name(value));
            return std::nullopt;
        }
        const auto number = value.to_number<double>();
        if (number != std::floor(number)) {
            violate(pointer, "wrong_type", "a whole number is expected, not " + to_text(value));
            return std::nullopt;
        }
        if (number < static_cast<double>(min) || number > static_cast<double>(max)) {
            violate(pointer, "out_of_range",
                    to_text(value) + " is outside " + std::to_string(min) + " to " + std::to_string(max));
            return std::nullopt;
        }
        return static_cast<Integer>(number);
    }

    void read_metadata(const json::value& value, JobPatch& patch) {
        const auto* object = value.if_object();
        if (object == nullptr) {
            violate("/metadata", "wrong_type", "an object is expected, not " + kind_name(value));
            return;
        }
        patch.metadata.emplace();
        for (const auto& member : *object) {
            const std::string name(member.key());
            const auto pointer = "/metadata/" + escape_pointer_token(name);
            if (name.empty() || name.size() > kMetadataNameBytes) {
                violate(pointer, "invalid_value", "a name has 1 to " + std::to_string(kMetadataNameBytes) + " bytes");
            } else if (member.value().is_null()) {
                (*patch.metadata)[name] = std::nullopt;
            } else if (!member.value().is_string()) {
                violate(pointer, "wrong_type",
                        "a string is expected, or null for a pair that is to go, not " + kind_name(member.value()));
            } else if (member.value().get_string().size() > kMetadataTextBytes) {
                violate(pointer, "too_large", "a text has at most " + std::to_string(kMetadataTextBytes) + " bytes");
            } else {
                (*patch.metadata)[name] = std::string(member.value().get_string());
            }
        }
    }

    std::vector<api::Violation>& out_;
};

}  // namespace

boost::system::result<JobPatch, api::SpecViolations> parse_job_patch(std::string_view text) {
    api::SpecViolations wrong;
    const auto refuse = [&wrong](const char* code, std::string detail) {
        wrong.violations.push_back({"", code, std::move(detail)});
    };
    if (text.size() > kPatchSizeLimit) {
        refuse("too_large", "the body is longer than " + std::to_string(kPatchSizeLimit) + " bytes");
        return wrong;
    }
    const auto document = parse_json_text(text, kDepthLimit);
    if (!document) {
        refuse("malformed_json", "not JSON: " + document.error().reason);
        return wrong;
    }
    if (!document->is_object()) {
        refuse("wrong_type", "an object is expected, not " + kind_name(*document));
        return wrong;
    }
    for (auto& pointer : duplicate_keys(text, kDepthLimit)) {
        wrong.violations.push_back({std::move(pointer), "duplicate_key", "stands more than once in its object"});
    }
    auto patch = PatchReader(wrong).read(document->get_object());
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
        api::SpecViolations wrong;
        wrong.violations.push_back({"/metadata", "too_large",
                                    "a job has at most " + std::to_string(kMetadataPairs) + " pairs, these are " +
                                        std::to_string(metadata.size())});
        return wrong;
    }
    return metadata;
}

}  // namespace distilld
