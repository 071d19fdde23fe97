"""What measured runs say of how sure an answer is: residuals of validated runs, by likeness."""
