#include <boost/json/object.hpp>
#include <utility>
#include <vector>

#include "api/job_spec_json.hpp"
#include "api/kinds/object_fields.hpp"
#include "api/kinds/text_checks.hpp"
#include "api/section_fields.hpp"
#include "api/spec_fields.hpp"
#include "api/spec_rules.hpp"
#include "base/json_text.hpp"
#include "pipeline/core/teacher_name.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

/// Reads one document by the table: fields in the order of the rows, each followed by the rules that wait for it. At
/// the end of each object, reports its unknown names.
class SpecReader {
  public:
    SpecReader(const SpecTable& table, const json::object& document, JobSpec& spec, std::vector<Violation>& violations)
        : table_(table), reading_{document, spec, violations} {}

    void read() { read_content("", reading_.document); }

  private:
    /// Reads the content of a section, and of the sections within it.
    void read_content(std::string_view pointer, const json::object& object) {
        std::vector<std::string> names;
        for (const auto member : table_.members_of(pointer)) {
            names.emplace_back(member.substr(pointer.size() + 1));
            if (const auto* field = table_.field(member)) {
                read_field(*field, object);
            } else if (const auto& section = table_.section(member); section.members_as.empty()) {
                read_section(section, object);
            } else {
                read_members(section);
            }
        }
        refuse_unknown(object, std::string(pointer), names, reading_.violations, [&](const std::string& name) {
            const auto* meant = table_.known_as(name);
            return std::string(meant != nullptr ? meant->pointer : closest(name, names) ? "" : place_of(name));
        });
    }

    /// Reads objects with the fields of another section, each as if it were that section of a spec of its own.
    void read_members(const SpecSection& section) {
        const auto* value = reading_.document.if_contains(section.name());
        if (value == nullptr) {
            return;
        }
        const auto* object = value->if_object();
        if (object == nullptr) {
            FieldReport{section.pointer, reading_.violations}.wrong_type("an object", *value);
            return;
        }
        if (object->empty() || object->size() > kMaxTeachers) {
            reading_.violate(section.pointer, "out_of_range", "has 1 to " + std::to_string(kMaxTeachers) + " teachers");
            return;
        }
        for (const auto& member : *object) {
            read_member(section, member.key(), member.value());
        }
        check_rules(section.pointer);
    }

    void read_member(const SpecSection& section, const std::string& name, const json::value& value) {
        const auto pointer = std::string(section.pointer) + "/" + escape_pointer_token(name);
        if (!is_teacher_name(name)) {
            reading_.violate(pointer, "invalid_value", std::string("is not a name: ") + kTeacherNameForm.complaint);
            return;
        }
        const auto& as = table_.section(section.members_as);
        const json::object alone{{as.name(), value}};
        JobSpec spec;
        spec.kind = reading_.spec.kind;
        std::vector<Violation> violations;
        SpecReader(table_, alone, spec, violations).read_section(as, alone);
        for (auto& violation : violations) {
            reading_.violate(pointer + violation.pointer.substr(as.pointer.size()), std::move(violation.code),
                             of_named_teacher(std::move(violation.detail), name));
        }
        if (auto* teacher = spec.teacher()) {
            reading_.spec.teachers.emplace(name, std::move(*teacher));
        }
    }

    void read_section(const SpecSection& section, const json::object& parent) {
        const auto* value = parent.if_contains(section.name());
        if (value == nullptr) {
            if (!section.required.empty() && needed(section.needed_by)) {
                reading_.require(section.pointer, section.required);
            }
            return;
        }
        const auto* object = value->if_object();
        if (object == nullptr) {
            FieldReport{section.pointer, reading_.violations}.wrong_type("an object", *value);
            return;
        }
        if (section.open != nullptr) {
            section.open(reading_.spec);
        }
        read_content(section.pointer, *object);
    }

    void read_field(const SpecField& field, const json::object& object) {
        if (const auto* value = object.if_contains(field.name())) {
            if (field.kind.read(*value, reading_.spec, {field.pointer, reading_.violations})) {
                reading_.good.insert(field.pointer);
            }
        } else if (!field.required.empty() && needed(field.needed_by)) {
            reading_.require(field.pointer, field.required);
        }
        check_rules(field.pointer);
    }

    void check_rules(std::string_view after) {
        for (const auto& rule : spec_rules()) {
            if (rule.after == after) {
                rule.check(reading_);
            }
        }
    }

    /// The rows of `kind` and `dataset.format` precede all fields that depend on them.
    [[nodiscard]] bool needed(NeededBy by) const {
        return by == NeededBy::all || (by == NeededBy::training && reading_.spec.kind == JobKind::train) ||
               (by == NeededBy::tokens && reading_.spec.dataset.format == DataFormat::jsonl &&
                !reading_.given("/rollout")) ||
               (by == NeededBy::data && !reading_.given("/rollout"));
    }

    /// The right place of a name that was written into the wrong object; "" if unknown.
    [[nodiscard]] std::string_view place_of(std::string_view name) const {
        for (const auto pointer : table_.members_of("")) {
            if (pointer.substr(1) == name) {
                return pointer;
            }
        }
        for (const auto& section : table_.sections) {
            if (section.name() == name) {
                return section.pointer;
            }
        }
        for (const auto& field : table_.fields) {
            if (field.name() == name) {
                return field.pointer;
            }
        }
        return "";
    }

    const SpecTable& table_;
    SpecReading reading_;
};

}  // namespace

std::string describe(const SpecViolations& violations) {
    return text_of_first(violations.violations, "\n", [](const Violation& violation) {
        return (violation.pointer.empty() ? "(document)" : violation.pointer) + ": " + violation.detail;
    });
}

void throw_exception_from_error(const SpecViolations& violations, const boost::source_location&) {
    throw ErrorException(invalid_input("the job spec is not valid:\n" + describe(violations)));
}

SpecViolations read_job_spec(std::string_view text, JobSpec& spec, const SpecTable& table) {
    SpecViolations result;
    auto& out = result.violations;
    if (const auto document = read_object(text, "the spec", kSpecSizeLimit, kSpecDepthLimit, out)) {
        SpecReader(table, *document, spec, out).read();
    }
    return result;
}

ParsedSpec parse_job_spec(std::string_view text) {
    JobSpec spec;
    auto violations = read_job_spec(text, spec, spec_table());
    if (!violations.violations.empty()) {
        return violations;
    }
    return spec;
}

}  // namespace distilld::api
