#include <algorithm>
#include <boost/json/array.hpp>

#include "api/kinds/object_fields.hpp"
#include "api/kinds/text_checks.hpp"
#include "api/section_fields.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxTerms = 64;

constexpr TextForm kTargetForm{
    .pattern = "(teacher|data)\\..+",
    .values = "`\"teacher.NAME\"` or `\"data.NAME\"`",
    .complaint = "must be teacher.NAME (an output of the teacher) or data.NAME (a tensor of the data)",
};

const std::vector<ObjectField<LossTerm>>& term_fields() {
    static const std::vector<ObjectField<LossTerm>> fields{
        {"kind", make_choice(&LossTerm::kind, kEnumNames<TensorLoss>), true},
        {"output", make_text(&LossTerm::output, {.max_bytes = kMaxTensorName}), true},
        {"target", make_text(&LossTerm::target, {.max_bytes = kMaxTensorName + 8, .form = &kTargetForm}), true},
        {"weight", make_number(&LossTerm::weight, {.max = 1e6, .ends = Ends::open_min})},
        {"temperature", make_number(&LossTerm::temperature, {.max = 1000, .ends = Ends::open_min})},
    };
    return fields;
}

json::value written(const LossTerm& term) {
    json::object object;
    for (const auto& field : term_fields()) {
        if (auto value = field.kind.write(term)) {
            object[field.name] = *std::move(value);
        }
    }
    return object;
}

/// A list of terms; keeps them with their defaults.
class LossTermsKind final : public ValueKind {
  public:
    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        const auto* array = value.if_array();
        if (array == nullptr) {
            return refuse(report, "wrong_type", "an array of objects is expected, not " + kind_name(value));
        }
        if (array->size() > kMaxTerms) {
            return refuse(report, "out_of_range", "lists more than " + std::to_string(kMaxTerms));
        }
        const auto wrong_before = report.violations.size();
        json::array kept;
        for (std::size_t i = 0; i < array->size(); ++i) {
            const std::string pointer = std::string(report.pointer) + "/" + std::to_string(i);
            const auto* object = (*array)[i].if_object();
            if (object == nullptr) {
                FieldReport{pointer, report.violations}.wrong_type("an object", (*array)[i]);
                continue;
            }
            std::vector<Violation> found;
            LossTerm term;
            read_fields(*object, term_fields(), term, found);
            for (auto& violation : found) {
                report.violations.push_back(
                    {pointer + violation.pointer, std::move(violation.code), std::move(violation.detail)});
            }
            kept.push_back(written(term));
        }
        return report.violations.size() == wrong_before ? std::optional<json::value>(kept) : std::nullopt;
    }
    json::object schema() const override {
        json::object properties;
        json::array required;
        for (const auto& field : term_fields()) {
            json::object schema = field.kind->schema();
            if (field.required) {
                required.emplace_back(field.name);
            } else if (auto initial = field.kind.initial()) {
                schema["default"] = *std::move(initial);
            }
            properties[field.name] = std::move(schema);
        }
        const json::object term{{"type", "object"},
                                {"additionalProperties", false},
                                {"required", std::move(required)},
                                {"properties", std::move(properties)}};
        return {{"type", "array"}, {"maxItems", kMaxTerms}, {"items", term}};
    }
    std::string values() const override {
        return "up to " + std::to_string(kMaxTerms) + " objects of `kind`, `output`, `target`, `weight`, `temperature`";
    }
    std::string plain_values() const override { return "list of loss terms"; }
};

}  // namespace

FieldKind<JobSpec> loss_terms_kind() {
    const auto to = [](const TrainingSpec& training) {
        json::array terms;
        for (const LossTerm& term : training.losses) {
            terms.push_back(written(term));
        }
        return json::value(std::move(terms));
    };
    const auto from = [](TrainingSpec& training, const json::value& kept) {
        training.losses.clear();
        std::vector<Violation> none;
        for (const json::value& term : kept.as_array()) {
            read_fields(term.as_object(), term_fields(), training.losses.emplace_back(), none);
        }
    };
    return make_field<TrainingSpec>(std::make_shared<LossTermsKind>(), to, from);
}

}  // namespace distilld::api
