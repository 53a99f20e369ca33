#include <boost/json/object.hpp>
#include <utility>

#include "api/job_spec_json.hpp"
#include "api/spec_fields.hpp"
#include "api/spec_rules.hpp"
#include "base/json_text.hpp"

namespace distilld::api {

namespace json = boost::json;

json::object to_json_object(const JobSpec& spec, const SpecTable& table) {
    const auto write = [&spec](const SpecField& field, json::object& object) {
        if (auto value = field.kind->write(spec)) {
            object[field.name()] = *std::move(value);
        }
    };
    json::object document;
    for (const auto pointer : table.members_of_document()) {
        if (const auto* field = table.field(pointer)) {
            write(*field, document);
            continue;
        }
        const auto& section = table.section(pointer);
        if (section.present != nullptr && !section.present(spec)) {
            continue;
        }
        json::object object;
        for (const auto* field : table.fields_of(pointer)) {
            write(*field, object);
        }
        document[section.name()] = std::move(object);
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
