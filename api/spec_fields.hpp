#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "api/job_spec.hpp"
#include "api/kinds/field_kinds.hpp"

/// The fields of a job spec, each described once. This table drives the parser, the writer, the suggestions for
/// misspelt names, the paths that are made absolute, the resume identity, the tables of docs/job-spec.md, the JobSpec
/// schema of api/openapi.yaml and the flags of the command line. A new field is a member of api/job_spec.hpp and a row
/// here; its relations to other fields are rules of api/spec_rules.cpp.
namespace distilld::api {

/// Limit of the name of a job, in bytes.
inline constexpr std::size_t kMaxJobName = 128;

template <>
struct SectionOf<StudentSpec> : SectionAt<&JobSpec::student> {};
template <>
struct SectionOf<TeacherSpec> {
    using Root = JobSpec;
    static auto* in(auto& spec) { return spec.teacher(); }
};
template <>
struct SectionOf<DatasetSpec> : SectionAt<&JobSpec::dataset> {};
template <>
struct SectionOf<RolloutSpec> : SectionAt<&JobSpec::rollout> {};
template <>
struct SectionOf<TrainingSpec> : SectionAt<&JobSpec::training> {};
template <>
struct SectionOf<EvalSpec> : SectionAt<&JobSpec::eval> {};
template <>
struct SectionOf<CheckpointSpec> : SectionAt<&JobSpec::checkpoint> {};
template <>
struct SectionOf<MetricsSpec> : SectionAt<&JobSpec::metrics> {};
template <>
struct SectionOf<PlacementSpec> : SectionAt<&JobSpec::placement> {};
template <>
struct SectionOf<LoraSpec> {
    using Root = JobSpec;
    static auto* in(auto& spec) { return spec.student.lora ? &*spec.student.lora : nullptr; }
};

/// Whether a resumed run may have another value. Every row must state it.
class DecidesWeights {
  public:
    enum Answer {
        no,             ///< it may: weights do not depend on it, or should continue with the new value
        first_weights,  ///< it may if the user orders the resume: a checkpoint replaces the first weights
        last_bits,      ///< it may, with a warning: another order of summation changes the last bits of weights
        yes,            ///< it may not
    };
    constexpr DecidesWeights(Answer answer) noexcept : answer_(answer) {}
    [[nodiscard]] constexpr bool operator==(Answer answer) const noexcept { return answer_ == answer; }

  private:
    Answer answer_;
};

/// What a path must be before a job begins.
enum class Named { nothing, file, folder };

/// Jobs for which a field or section is required: all, those that train, those with token data, or those without
/// rollouts.
enum class NeededBy { all, training, tokens, data };

struct SpecField {
    std::string_view pointer;        ///< "/name", "/training/seed": a field of the document or of a section
    FieldKind<JobSpec> kind;         ///< member, values, range; the default is the member's
    DecidesWeights decides_weights;  ///< must be given
    std::string_view help;           ///< one line of Markdown
    std::string_view required = {};  ///< what must be given; empty = optional
    /// Follows the default in the documentation, or replaces it if it is "none": "= all cores".
    std::string_view default_note = {};
    bool default_depends = false;  ///< the default depends on other fields, by a rule: the schema names none
    NeededBy needed_by = NeededBy::all;
    Named there = Named::nothing;  ///< for a path that is read; a file may be a pattern (glob) that has matches
    /// Its names in other programs. They are unknown fields; the message suggests this field.
    std::vector<std::string_view> also_known_as = {};

    /// "/training" for "/training/seed"; empty for a field of the document.
    [[nodiscard]] std::string_view section() const { return pointer.substr(0, pointer.rfind('/')); }
    [[nodiscard]] std::string_view name() const { return pointer.substr(pointer.rfind('/') + 1); }
};

struct SpecSection {
    std::string_view pointer;        ///< "/training"; "/student/lora" lies within "/student"
    std::string_view required = {};  ///< what must be given; empty = optional
    /// Creates the section if the document has it; null if every JobSpec has it.
    void (*open)(JobSpec&) = nullptr;
    bool (*present)(const JobSpec&) = nullptr;  ///< null: always present
    /// Exactly one of these fields must be given (checked in spec_rules.cpp); may be empty.
    std::vector<std::string_view> exactly_one = {};
    NeededBy needed_by = NeededBy::all;
    /// "/teacher" for "/teachers": its members are objects with the fields of that section, each under its own name,
    /// and it has no rows. Empty: an object with fields.
    std::string_view members_as = {};
    std::string_view help = {};  ///< one line of Markdown for a section that may be left out; may be empty

    [[nodiscard]] std::string_view name() const { return pointer.substr(pointer.rfind('/') + 1); }
};

struct SpecTable {
    std::vector<SpecSection> sections;
    std::vector<SpecField> fields;  ///< in the order of violations and documentation

    /// Null for a pointer without a row.
    [[nodiscard]] const SpecField* field(std::string_view pointer) const;
    /// The field with this name in other programs; null if there is none.
    [[nodiscard]] const SpecField* known_as(std::string_view name) const;
    /// Throws if the section has no row.
    [[nodiscard]] const SpecSection& section(std::string_view pointer) const;
    /// The fields of one section in order; "" means the document itself.
    [[nodiscard]] std::vector<const SpecField*> fields_of(std::string_view section) const;
    /// The members of a section in order; "" means the document. They are its own fields ("/name"), and sections
    /// ("/student") at the place of their first field, followed by a section whose members have that form.
    [[nodiscard]] std::vector<std::string_view> members_of(std::string_view section) const;
};

[[nodiscard]] const SpecTable& spec_table();

}  // namespace distilld::api
