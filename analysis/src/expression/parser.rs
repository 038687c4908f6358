//! Syntax tree of an expression, by recursive descent. Pure.
//!
//! ```text
//! or         := and ("or" and)*
//! and        := not ("and" not)*
//! not        := "not" not | comparison
//! comparison := sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)?
//! sum        := product (("+" | "-") product)*
//! product    := sign (("*" | "/") sign)*
//! sign       := "-" sign | atom
//! atom       := number | text | name | name "(" arguments ")" | "(" or ")"
//! ```

use polymeter_proto::suggest::nearest;

use super::lexer::{Token, tokens};
use super::syntax::{Expression, ExpressionError, Function, Node, Operator, Scope, Statistic, Type, Value};

/// Depth of parentheses and prefixes, so that the parser's stack is bounded.
const DEPTH_MAX: usize = 50;

const KEYWORDS: [&str; 5] = ["and", "or", "not", "true", "false"];

/// Names, functions and numbers of their arguments.
const FUNCTIONS: [(&str, Function, usize); 4] = [
    ("min", Function::Min, 2),
    ("max", Function::Max, 2),
    ("ceil", Function::Ceil, 1),
    ("floor", Function::Floor, 1),
];

type Parsed = Result<(Node, Type), ExpressionError>;

pub(super) fn parse(text: &str, scope: &dyn Scope) -> Result<Expression, ExpressionError> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens, next: 0, depth: 0, scope, names: Vec::new() };
    let (root, result) = parser.or()?;
    if *parser.peek() != Token::End {
        return Err(parser.unexpected("an operator or the end"));
    }
    Ok(Expression { root, result, names: parser.names })
}

struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
    scope: &'a dyn Scope,
    names: Vec<String>,
}

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(_, token)| token)
    }

    fn position(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |(position, _)| *position)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Token::Symbol(next) if *next == symbol);
        self.next += usize::from(found);
        found
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let found = matches!(self.peek(), Token::Name(name) if name == keyword);
        self.next += usize::from(found);
        found
    }

    fn error<T>(position: usize, message: impl Into<String>) -> Result<T, ExpressionError> {
        Err(ExpressionError { position, message: message.into() })
    }

    fn unexpected(&self, expected: &str) -> ExpressionError {
        let found = match self.peek() {
            Token::Number(_) => "a number".to_owned(),
            Token::Text(_) => "a text".to_owned(),
            Token::Name(name) => format!("`{name}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end".to_owned(),
        };
        ExpressionError { position: self.position(), message: format!("expected {expected}, found {found}") }
    }

    fn operand(
        &mut self,
        expected: Type,
        parse: impl FnOnce(&mut Self) -> Parsed,
    ) -> Result<Node, ExpressionError> {
        let position = self.position();
        let (node, found) = parse(self)?;
        Self::check(position, expected, found)?;
        Ok(node)
    }

    fn check(position: usize, expected: Type, found: Type) -> Result<(), ExpressionError> {
        if expected == found {
            Ok(())
        } else {
            Self::error(position, format!("expected {expected}, found {found}"))
        }
    }

    /// Parses operands of one type between operators that keep the type, left to right.
    fn chain(
        &mut self,
        of: Type,
        operand: fn(&mut Self) -> Parsed,
        operator: impl Fn(&mut Self) -> Option<Operator>,
    ) -> Parsed {
        let position = self.position();
        let (mut node, found) = operand(self)?;
        while let Some(operator) = operator(self) {
            Self::check(position, of, found)?;
            let other = self.operand(of, operand)?;
            node = Node::Binary(operator, Box::new(node), Box::new(other));
        }
        Ok((node, found))
    }

    fn or(&mut self) -> Parsed {
        self.chain(Type::Truth, Self::and, |parser| parser.take_keyword("or").then_some(Operator::Or))
    }

    fn and(&mut self) -> Parsed {
        self.chain(Type::Truth, Self::not, |parser| parser.take_keyword("and").then_some(Operator::And))
    }

    fn not(&mut self) -> Parsed {
        if !self.take_keyword("not") {
            return self.comparison();
        }
        let operand = self.deeper(|parser| parser.operand(Type::Truth, Self::not))?;
        Ok((Node::Not(Box::new(operand)), Type::Truth))
    }

    fn comparison(&mut self) -> Parsed {
        const OPERATORS: [(&str, Operator); 6] = [
            ("<", Operator::Less),
            ("<=", Operator::LessOrEqual),
            (">", Operator::Greater),
            (">=", Operator::GreaterOrEqual),
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
        ];
        let (one, found) = self.sum()?;
        let position = self.position();
        let operator = OPERATORS.into_iter().find(|(symbol, _)| self.take_symbol(symbol));
        let Some((symbol, operator)) = operator else { return Ok((one, found)) };
        let is_order = !matches!(operator, Operator::Equal | Operator::NotEqual);
        if is_order && found != Type::Number {
            return Self::error(position, format!("`{symbol}` compares numbers, found {found}"));
        }
        let other = self.operand(found, Self::sum)?;
        Ok((Node::Binary(operator, Box::new(one), Box::new(other)), Type::Truth))
    }

    fn sum(&mut self) -> Parsed {
        self.chain(Type::Number, Self::product, |parser| {
            let plus = parser.take_symbol("+").then_some(Operator::Plus);
            plus.or_else(|| parser.take_symbol("-").then_some(Operator::Minus))
        })
    }

    fn product(&mut self) -> Parsed {
        self.chain(Type::Number, Self::sign, |parser| {
            let times = parser.take_symbol("*").then_some(Operator::Times);
            times.or_else(|| parser.take_symbol("/").then_some(Operator::Divide))
        })
    }

    fn sign(&mut self) -> Parsed {
        if !self.take_symbol("-") {
            return self.atom();
        }
        let operand = self.deeper(|parser| parser.operand(Type::Number, Self::sign))?;
        Ok((Node::Negate(Box::new(operand)), Type::Number))
    }

    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, ExpressionError>,
    ) -> Result<T, ExpressionError> {
        if self.depth >= DEPTH_MAX {
            return Self::error(self.position(), format!("nested deeper than {DEPTH_MAX} levels"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn atom(&mut self) -> Parsed {
        let position = self.position();
        match self.peek().clone() {
            Token::Number(number) => {
                self.next += 1;
                Ok((Node::Constant(Value::Number(number)), Type::Number))
            }
            Token::Text(text) => {
                self.next += 1;
                Ok((Node::Constant(Value::Text(text)), Type::Text))
            }
            Token::Symbol("(") => {
                self.next += 1;
                let inner = self.deeper(Self::or)?;
                self.close()?;
                Ok(inner)
            }
            Token::Name(name) if name == "true" || name == "false" => {
                self.next += 1;
                Ok((Node::Constant(Value::Truth(name == "true")), Type::Truth))
            }
            Token::Name(name) if !KEYWORDS.contains(&name.as_str()) => {
                self.next += 1;
                if self.take_symbol("(") { self.call(position, &name) } else { self.name(position, name) }
            }
            Token::Name(_) | Token::Symbol(_) | Token::End => {
                Err(self.unexpected("a number, a text, a name or `(`"))
            }
        }
    }

    fn close(&mut self) -> Result<(), ExpressionError> {
        if self.take_symbol(")") { Ok(()) } else { Err(self.unexpected("`)`")) }
    }

    fn name(&mut self, position: usize, name: String) -> Parsed {
        let Some(found) = self.scope.type_of(&name) else {
            let hint = nearest(&name, self.scope.names())
                .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Self::error(position, format!("unknown fact `{name}`{hint}"));
        };
        if !self.names.contains(&name) {
            self.names.push(name.clone());
        }
        Ok((Node::Name(name), found))
    }

    fn call(&mut self, position: usize, name: &str) -> Parsed {
        if name == "known" {
            let (inner, _) = self.deeper(Self::or)?;
            self.close()?;
            return Ok((Node::Known(Box::new(inner)), Type::Truth));
        }
        if let Some(statistic) = Statistic::ALL.into_iter().find(|statistic| statistic.name() == name) {
            let Token::Text(metric) = self.take() else {
                self.next -= 1;
                return Err(self.unexpected("the name of a metric in quotes"));
            };
            self.close()?;
            return Ok((Node::Metric(statistic, metric), Type::Number));
        }
        let Some((_, function, count)) = FUNCTIONS.into_iter().find(|(known, _, _)| *known == name) else {
            let known = FUNCTIONS.iter().map(|(known, _, _)| *known);
            let known: Vec<&str> =
                known.chain(Statistic::ALL.map(Statistic::name)).chain(["known"]).collect();
            return Self::error(
                position,
                format!("unknown function `{name}`: expected {}", known.join(", ")),
            );
        };
        let mut arguments = Vec::new();
        for number in 0..count {
            if number > 0 && !self.take_symbol(",") {
                return Err(self.unexpected("`,`"));
            }
            arguments.push(self.deeper(|parser| parser.operand(Type::Number, Self::sum))?);
        }
        self.close()?;
        Ok((Node::Call(function, arguments), Type::Number))
    }
}
