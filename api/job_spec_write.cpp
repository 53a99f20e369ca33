#include <boost/json/object.hpp>
#include <utility>

#include "api/job_spec_json.hpp"
#include "api/spec_fields.hpp"
#include "api/spec_rules.hpp"
#include "base/json_text.hpp"

namespace distilld::api {

namespace json = boost::json;

namespace {

void write(const JobSpec& spec, const SpecField& field, json::object& object) {
    if (auto value = field.kind.write(spec)) {
        object[field.name()] = *std::move(value);
    }
}

json::object written_section(const JobSpec& spec, const SpecTable& table, std::string_view pointer);

json::object written_members(const JobSpec& spec, const SpecTable& table, const SpecSection& section) {
    json::object members;
    for (const auto& [name, teacher] : spec.teachers) {
        if (!name.empty()) {
            JobSpec alone;
            alone.teachers[""] = teacher;
            members[name] = written_section(alone, table, section.members_as);
        }
    }
    return members;
}

/// "" is the document itself.
json::object written_section(const JobSpec& spec, const SpecTable& table, std::string_view pointer) {
    json::object object;
    for (const auto member : table.members_of(pointer)) {
        if (const auto* field = table.field(member)) {
            write(spec, *field, object);
            continue;
        }
        const auto& section = table.section(member);
        if (section.present != nullptr && !section.present(spec)) {
            continue;
        }
        object[section.name()] =
            section.members_as.empty() ? written_section(spec, table, member) : written_members(spec, table, section);
    }
    return object;
}

}  // namespace

json::object to_json_object(const JobSpec& spec, const SpecTable& table) {
    json::object document = written_section(spec, table, "");
    write_dependent_defaults(spec, document);
    return document;
}

json::object to_json_object(const JobSpec& spec) {
    return to_json_object(spec, spec_table());
}

std::string to_json(const JobSpec& spec) {
    return to_text(to_json_object(spec));
}

}  // namespace distilld::api
