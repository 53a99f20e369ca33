#pragma once

#include <array>
#include <cstddef>

#include "pipeline/core/job_spec.hpp"

/// How the job spec spells the values of its enumerations: for its reader and its writer.
namespace distilld::api {

template <class Enum>
struct EnumName {
    const char* text;
    Enum value;
};

inline constexpr std::array kDtypes{EnumName<Dtype>{"auto", Dtype::auto_select}, EnumName<Dtype>{"fp32", Dtype::fp32},
                                    EnumName<Dtype>{"bf16", Dtype::bf16}};
inline constexpr std::array kInits{EnumName<StudentInit>{"pretrained", StudentInit::pretrained},
                                   EnumName<StudentInit>{"random", StudentInit::random}};
inline constexpr auto kProtocols = [] {
    std::array<EnumName<TeacherProtocol>, kTeacherProtocolNames.size()> names{};
    for (std::size_t i = 0; i < names.size(); ++i) {
        names[i] = {kTeacherProtocolNames[i].text, kTeacherProtocolNames[i].value};
    }
    return names;
}();
inline constexpr std::array kSchedulers{EnumName<LrScheduler>{"constant", LrScheduler::constant},
                                        EnumName<LrScheduler>{"linear", LrScheduler::linear},
                                        EnumName<LrScheduler>{"cosine", LrScheduler::cosine}};

template <class Enum, std::size_t N>
const char* name_of(const std::array<EnumName<Enum>, N>& names, Enum value) noexcept {
    for (const auto& name : names) {
        if (name.value == value) {
            return name.text;
        }
    }
    return "unknown";
}

}  // namespace distilld::api
