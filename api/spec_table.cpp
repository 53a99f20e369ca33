#include <algorithm>
#include <stdexcept>

#include "api/spec_fields.hpp"

namespace distilld::api {

const SpecField* SpecTable::field(std::string_view pointer) const {
    const auto found = std::ranges::find(fields, pointer, &SpecField::pointer);
    return found == fields.end() ? nullptr : &*found;
}

const SpecField* SpecTable::known_as(std::string_view name) const {
    const auto found = std::ranges::find_if(fields, [name](const SpecField& field) {
        return std::ranges::find(field.also_known_as, name) != field.also_known_as.end();
    });
    return found == fields.end() ? nullptr : &*found;
}

const SpecSection& SpecTable::section(std::string_view pointer) const {
    const auto found = std::ranges::find(sections, pointer, &SpecSection::pointer);
    if (found == sections.end()) {
        throw std::logic_error("the table of spec fields has no section " + std::string(pointer));
    }
    return *found;
}

std::vector<const SpecField*> SpecTable::fields_of(std::string_view section) const {
    std::vector<const SpecField*> rows;
    for (const auto& field : fields) {
        if (field.section() == section) {
            rows.push_back(&field);
        }
    }
    return rows;
}

std::vector<std::string_view> SpecTable::members_of(std::string_view section) const {
    std::vector<std::string_view> members;
    for (const auto& field : fields) {
        if (!field.pointer.starts_with(section) || field.pointer[section.size()] != '/') {
            continue;
        }
        const auto member = field.pointer.substr(0, field.pointer.find('/', section.size() + 1));
        if (std::ranges::find(members, member) == members.end()) {
            members.push_back(member);
            for (const auto& other : sections) {
                if (other.members_as == member) {
                    members.push_back(other.pointer);
                }
            }
        }
    }
    return members;
}

}  // namespace distilld::api
