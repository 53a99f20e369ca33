#pragma once

#include <utility>

namespace distilld {

/// Calls a function, which must not throw, at the end of the scope.
template <class Function>
class ScopeExit {
  public:
    explicit ScopeExit(Function function) : function_(std::move(function)) {}
    ~ScopeExit() { function_(); }
    ScopeExit(const ScopeExit&) = delete;
    ScopeExit& operator=(const ScopeExit&) = delete;

  private:
    Function function_;
};

}  // namespace distilld
