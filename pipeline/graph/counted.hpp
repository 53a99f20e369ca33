#pragma once

namespace distilld {

/// Counts for as long as it lives.
template <class Number>
class Counted {
  public:
    explicit Counted(Number& count) : count_(count) { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

  private:
    Number& count_;
};

}  // namespace distilld
