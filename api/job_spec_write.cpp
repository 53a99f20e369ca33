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
    if (auto value = field.kind->write(spec)) {
        object[field.name()] = *std::move(value);
    }
}

json::object written_section(const JobSpec& spec, const SpecTable& table, std::string_view pointer) {
    json::object object;
    for (const auto* field : table.fields_of(pointer)) {
        write(spec, *field, object);
    }
    return object;
}

json::object written_members(const JobSpec& spec, const SpecTable& table, const SpecSection& section) {
    json::object members;
    for (const auto& [name, teacher] : spec.teachers) {
        JobSpec alone;
        alone.teacher = teacher;
        members[name] = written_section(alone, table, section.members_as);
    }
    return members;
}

}  // namespace

json::object to_json_object(const JobSpec& spec, const SpecTable& table) {
    json::object document;
    for (const auto pointer : table.members_of_document()) {
        if (const auto* field = table.field(pointer)) {
            write(spec, *field, document);
            continue;
        }
        const auto& section = table.section(pointer);
        if (section.present != nullptr && !section.present(spec)) {
            continue;
        }
        document[section.name()] =
            section.members_as.empty() ? written_section(spec, table, pointer) : written_members(spec, table, section);
    }
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
